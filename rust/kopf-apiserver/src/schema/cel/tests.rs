//! Evaluation and cost limits of rules.

use std::time::Duration;

use serde_json::json;

use super::*;

fn schema(rule: &str) -> Schema {
    Schema::from_json(&json!({
        "type": "object", "x-kubernetes-preserve-unknown-fields": true,
        "properties": {"l": {"type": "array", "items": {"type": "integer"}}, "s": {"type": "string"}},
        "x-kubernetes-validations": [{"rule": rule}],
    }))
}

/// Without a limit of time, to be independent of the machine.
const LIMITS_OF_TESTS: Limits = Limits { call: 50_000, object: 150_000, time: Duration::from_hours(1) };

fn messages(rule: &str, value: &Value) -> Vec<String> {
    check_within(LIMITS_OF_TESTS, value, None, &schema(rule)).into_iter().map(|cause| cause.message).collect()
}

#[test]
fn usual_rules_are_cheap() {
    let value = json!({"l": (0..1000).collect::<Vec<_>>(), "s": "x".repeat(10_000)});
    let rules = [
        "self.l.all(x, x >= 0 && x < 1000) && self.s.startsWith('x')",
        "self.l.map(x, x * 2).filter(x, x > 10).size() == 994",
        "self.l.exists_one(x, x == 7) && self.l[7] == 7 && has(self.s) && !has(self.t)",
        "self.s.size() == 10000 && math.greatest([1, 2]) == 2 && self.s.replace('x', 'y').contains('yy')",
        "lists.range(10).distinct().join(',') == '0,1,2,3,4,5,6,7,8,9' || true",
        "self.l == self.l && [1, 2].all(x, x in self.l) && {'a': self.s}.a == self.s",
    ];
    for rule in rules {
        assert_eq!(messages(rule, &value), Vec::<String>::new(), "{rule}");
        assert_eq!(check_inline(&value, None, &schema(rule)), Some(vec![]), "{rule}");
    }
}

#[test]
fn expensive_rules_are_cancelled() {
    let value = json!({"l": (0..300).collect::<Vec<_>>(), "s": "x".repeat(20_000)});
    let doubling = (0..30).fold("self.s".to_owned(), |inner, _| format!("[{inner}].map(s, s + s)[0]"));
    let rules = [
        "self.l.all(a, self.l.all(b, self.l.all(c, a + b + c >= 0)))",
        "self.l.all(a, self.l.all(b, self.l.all(c, self.l.all(d, a + b + c + d >= 0))))",
        &format!("{doubling}.size() > 0"),
        "self.s.replace('', self.s).size() > 0",
        "self.s.split('').join(self.s).size() > 0",
        "self.s.split('').distinct().size() > 0",
        "lists.range(1000000).all(x, lists.range(1000000).size() > 0)",
        "self.l.exists(a, self.l.exists(b, self.l.exists(c, a + b + c < 0))) || true",
    ];
    for rule in rules {
        let expected = format!(
            "Invalid value: \"object\": 'operation cancelled: actual cost limit exceeded': no further validation rules will be \
             run due to call cost exceeds limit for rule: failed rule: {rule}"
        );
        assert_eq!(messages(rule, &value), [expected], "{rule}");
    }
}

#[test]
fn the_rules_of_an_object_share_a_budget() {
    let rule = json!([{"rule": "self.all(a, self.all(b, a + b >= 0))"}]);
    let list = json!({"type": "array", "items": {"type": "integer"}, "x-kubernetes-validations": rule});
    let schema = Schema::from_json(&json!({"type": "object", "additionalProperties": list}));
    let value = |count: usize| {
        (0..count).map(|i| (format!("l{i}"), Value::from(vec![1; 50]))).collect::<serde_json::Map<_, _>>()
    };
    assert_eq!(check_within(LIMITS_OF_TESTS, &value(5).into(), None, &schema), []);
    let messages: Vec<_> = check_within(LIMITS_OF_TESTS, &value(100).into(), None, &schema)
        .into_iter()
        .map(|cause| cause.message)
        .collect();
    let budget =
        "validation failed due to running out of cost budget, no further validation rules will be run";
    assert_eq!(messages, [format!("Invalid value: \"object\": {budget}")]);
}

#[test]
fn properties_have_escaped_names() {
    let rule = "has(self.x__dash__y) && self.x__dash__y == 1 && self.__for__ == self.for && self.a__underscores__b == 2 && \
                self.map['x-y'] == 3";
    let integer = json!({"type": "integer"});
    let schema = Schema::from_json(&json!({"type": "object", "x-kubernetes-validations": [{"rule": rule}],
        "properties": {"x-y": integer, "for": integer, "a__b": integer,
            "map": {"type": "object", "additionalProperties": integer}}}));
    let mut value = json!({"x-y": 1, "for": 4, "a__b": 2, "map": {"x-y": 3}});
    assert_eq!(check(&value, None, &schema), []);
    value["x-y"] = 2.into();
    assert_eq!(check(&value, None, &schema).len(), 1);
}

#[test]
fn patterns_have_the_syntax_of_go() {
    let value = json!({"s": "\u{663}", "l": []});
    for (rule, expected) in [
        (r"self.s.matches('\\d')", Some("Invalid value: failed rule: self.s.matches('\\\\d')")),
        (r"!matches(self.s, '\\d') && self.s.find('\\d') == '' && self.s.findAll('\\D').size() == 1", None),
    ] {
        assert_eq!(messages(rule, &value), Vec::from_iter(expected), "{rule}");
    }
    assert_eq!(messages("self.s.matches('[') || true", &value), Vec::<String>::new());
    assert_ne!(messages("self.s.matches('[')", &value), Vec::<String>::new());
}
