"""Store the state of the operator in one readable field of the status."""

import kopf


class Diary(kopf.StatusProgressStorage):
    """Progress in the status, with a count of the writes."""

    def __init__(self):
        super().__init__(field="status.diary.progress", touch_field="status.diary.touch")

    def store(self, *, key, record, body, patch):
        super().store(key=key, record=record, body=body, patch=patch)
        pages = body.status.get("diary", {}).get("pages", 0)
        patch.status.setdefault("diary", {})["pages"] = pages + 1

    def clear(self, *, essence):
        # The fields of the storage must not count as changes by users.
        essence = super().clear(essence=essence)
        essence.get("status", {}).pop("diary", None)
        self.remove_empty_stanzas(essence)
        return essence


@kopf.on.startup()
def configure(settings: kopf.OperatorSettings, **_):
    settings.persistence.progress_storage = Diary()
    settings.persistence.diffbase_storage = kopf.StatusDiffBaseStorage(field="status.diary.last")


@kopf.on.create("lockers")
def lock(retry, **_):
    if retry < 2:
        raise kopf.TemporaryError("The key is stuck.", delay=1)
    return "locked"


@kopf.on.update("lockers")
def replace(old, new, logger, **_):
    logger.info(f"{old['spec']['content']} => {new['spec']['content']}")
