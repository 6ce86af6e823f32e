"""Field handlers: scalars, nested dicts, lists, labels, annotations; added, changed, removed fields."""

from tests.differential.harness.session import Session


def run(s: Session) -> None:
    s.start()
    s.create("widgets", "w", {"replicas": 1, "template": {"labels": {"a": "1"}}, "items": [1, 2, {"x": "y"}]})
    s.settle("created")
    s.patch("widgets", "w", {"spec": {"replicas": 2}})
    s.settle("a scalar changed")
    s.patch("widgets", "w", {"spec": {"template": {"labels": {"a": None, "b": "2", "c": {"d": []}}}}})
    s.settle("a dict changed")
    s.patch("widgets", "w", {"spec": {"items": [1, {"x": "z"}]}})
    s.settle("a list changed")
    s.patch("widgets", "w", {"spec": {"replicas": None, "items": None}})
    s.settle("fields removed")
    s.patch(
        "widgets", "w", {"metadata": {"labels": {"l": "v"}, "annotations": {"watched": "x", "other": "y"}}}
    )
    s.settle("labels and annotations added")
    s.patch("widgets", "w", {"metadata": {"annotations": {"other": "z"}}, "spec": {"replicas": 0}})
    s.settle("a falsy value and an unwatched annotation")
    s.stop()
