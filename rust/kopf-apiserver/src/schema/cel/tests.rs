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

fn check_within(limits: Limits, value: &Value, old: Option<&Value>, schema: &Schema) -> Vec<Cause> {
    violations(limits, value, old, schema).causes
}

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
        "self.s.size() == 10000 && [1, 2].max() == 2 && self.s.replace('x', 'y').contains('yy')",
        "lists.range(10).distinct().join(',') == '0,1,2,3,4,5,6,7,8,9' || true",
        "self.l == self.l && [1, 2].all(x, x in self.l) && {'a': self.s}.a == self.s",
    ];
    for rule in rules {
        assert_eq!(messages(rule, &value), Vec::<String>::new(), "{rule}");
        assert_eq!(check_inline(&value, None, &schema(rule)), Some(Violations::default()), "{rule}");
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
        "sets.contains(self.l, self.l)",
        "sets.equivalent(self.l, self.l)",
        "sets.intersects(self.l, self.l.map(x, x + 1000))",
        "self.l.exists(a, self.l.exists(b, self.l.exists(c, a + b + c < 0))) || true",
    ];
    for rule in rules {
        let expected = format!(
            "Invalid value: \"object\": 'operation cancelled: actual cost limit exceeded': no further validation rules will be \
             run due to call cost exceeds limit for rule: {rule}"
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
    assert_eq!(messages, [format!("Invalid value: \"array\": {budget}")]);
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
    assert_eq!(check(&value, None, &schema).causes, []);
    value["x-y"] = 2.into();
    assert_eq!(check(&value, None, &schema).causes.len(), 1);
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

#[test]
fn sets_and_maps_are_compared_without_order() {
    let text = json!({"type": "string"});
    let set = json!({"type": "array", "x-kubernetes-list-type": "set", "items": text});
    let item = json!({"type": "object", "properties": {"k": text, "v": {"type": "integer"}, "set": set}});
    let map = json!({"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"], "items": item});
    let schema = |rule: &str| {
        let list = json!({"type": "array", "items": text});
        let properties = json!({"set": set, "map": map, "list": list, "inner": {"type": "object", "properties": {"set": set}}});
        Schema::from_json(
            &json!({"type": "object", "properties": properties, "x-kubernetes-validations": [{"rule": rule}]}),
        )
    };
    let item = |key: &str, value: i64, set: [&str; 2]| json!({"k": key, "v": value, "set": set});
    let old = json!({"set": ["a", "b", "c"], "list": ["a", "b"], "inner": {"set": ["x", "y"]},
        "map": [item("a", 1, ["x", "y"]), item("b", 2, ["x", "y"])]});
    let new = json!({"set": ["c", "a", "b"], "list": ["b", "a"], "inner": {"set": ["y", "x"]},
        "map": [item("b", 2, ["y", "x"]), item("a", 1, ["y", "x"])]});
    for rule in [
        "self.set == oldSelf.set && !(self.set != oldSelf.set) && self.set == ['b', 'a', 'c']",
        "self.set != ['b', 'a'] && self.set != ['b', 'a', 'x'] && self.list != oldSelf.list",
        "['a', 'b', 'c'] != self.set && self.set.filter(x, true) != oldSelf.set && oldSelf.set == self.set.filter(x, true)",
        "self.map == oldSelf.map && self.inner == oldSelf.inner && [self.inner] == [oldSelf.inner]",
        "self.map[0] == oldSelf.map[1] && self.map[0] in oldSelf.map && self.map != [oldSelf.map[0]]",
        // As in kube-apiserver: each item of the literal is looked up by its key.
        "self.map == [oldSelf.map[0], oldSelf.map[0]]",
        "self.set + ['z', 'a'] == ['z', 'a', 'b', 'c'] && (self.set + ['z', 'a'])[3] == 'z' && (['a'] + self.set).size() == 4",
        "(self.map + oldSelf.map).map(i, i.k) == ['b', 'a'] && (self.map + [self.map[1]]).size() == 2",
        "optional.of(self.set) == optional.of(oldSelf.set) && {'a': self.set} == {'a': oldSelf.set}",
        "self.set.isSorted() == false && self.set.max() == 'c' && sets.equivalent(self.set, oldSelf.set) && type(self.set) == list",
        "self.set.size() == 3 && self.set.join() == 'cab' && self.set.sort() == ['a', 'b', 'c'] && self.set[0] == 'c'",
    ] {
        assert_eq!(check_within(LIMITS_OF_TESTS, &new, Some(&old), &schema(rule)), [], "{rule}");
    }
    let mut equal = new.clone();
    equal["list"] = old["list"].clone();
    assert_eq!(check_within(LIMITS_OF_TESTS, &equal, Some(&old), &schema("self == oldSelf")), []);
    assert_eq!(check_within(LIMITS_OF_TESTS, &new, Some(&old), &schema("self == oldSelf")).len(), 1);
}

#[test]
fn large_sets_and_maps_are_compared_in_linear_time() {
    let text = json!({"type": "string"});
    let item = json!({"type": "object", "properties": {"k": text}});
    let schema = Schema::from_json(&json!({"type": "object", "properties": {
        "set": {"type": "array", "x-kubernetes-list-type": "set", "items": text},
        "map": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"], "items": item},
    }, "x-kubernetes-validations": [{"rule": "self == oldSelf && (self.set + oldSelf.set).size() == self.set.size() && \
        (self.map + oldSelf.map).size() == self.map.size()"}]}));
    let value = |keys: &mut dyn Iterator<Item = usize>| {
        let keys: Vec<String> = keys.map(|key| format!("key-{key}")).collect();
        let items: Vec<Value> = keys.iter().map(|key| json!({"k": key})).collect();
        json!({"set": keys, "map": items})
    };
    // Comparing each item with each other one would take hours.
    let limits = Limits { call: u64::MAX, object: u64::MAX, ..LIMITS_OF_TESTS };
    let (old, new) = (value(&mut (0..100_000)), value(&mut (0..100_000).rev()));
    assert_eq!(check_within(limits, &new, Some(&old), &schema), []);
}

#[test]
fn comprehensions_can_have_two_variables() {
    let value = json!({"l": [3, 1, 2], "s": "x", "m": {"a": 1, "b": 2}});
    for rule in [
        "self.l.all(i, v, v > 0 && i < 3) && !self.l.all(i, v, v > i) && self.m.all(k, v, k != '' && v > 0)",
        "self.l.exists(i, v, i == 2 && v == 2) && self.l.existsOne(i, v, v == i) == false && self.l.exists_one(i, v, v == 3)",
        "self.l.transformList(i, v, v * 10 + i) == [30, 11, 22] && self.l.transformList(i, v, v > 1, i) == [0, 2]",
        "self.m.transformMap(k, v, v + 1) == {'a': 2, 'b': 3} && self.l.transformMap(i, v, v > 1, v) == {0: 3, 2: 2}",
        "self.m.transformMapEntry(k, v, {v: k}) == {1: 'a', 2: 'b'} && self.m.transformMapEntry(k, v, v > 1, {k: v}) == {'b': 2}",
        // An error is overridden by an item that decides.
        "!self.l.all(i, v, 1 / i > 0 && v > 3) && self.l.exists(i, v, v / i == 1)",
        // Inner variables hide those outside, and variables outside are visible.
        "self.l.all(i, v, self.l.all(j, v, v == self.l[j])) && self.l.all(i, v, self.m.exists(k, w, v + w > i))",
        "self.l.all(i, v, [v].all(v, v == self.l[i])) && self.l.transformList(i, v, [i].map(i, i + v)) == [[3], [2], [4]]",
        "self.m.exists(k, v, has(self.m.a) && self.m[k] == v) && [{'x': 1}].all(i, v, has(v.x) && v.x == 1)",
        "[].all(i, v, false) && ![].exists(i, v, true) && {}.transformMap(k, v, v) == {}",
    ] {
        assert_eq!(messages(rule, &value), Vec::<String>::new(), "{rule}");
    }
    let rule = "self.l.transformMapEntry(i, v, {'x': v}).size() == 1";
    let expected = "insert failed: key x already exists";
    assert!(
        messages(rule, &value).iter().any(|message| message.contains(expected)),
        "{:?}",
        messages(rule, &value)
    );
}

/// All that walks an expression recurses.
#[test]
fn deep_expressions_are_checked_and_evaluated() {
    for (name, text) in parsing::tests::deep(248) {
        let value = json!({"f": {}, "l": [1], "s": "x"});
        assert_eq!(messages(&text, &value), Vec::<String>::new(), "{name}");
        assert_eq!(literals::instantiation_error(&text), None, "{name}");
        assert!(estimate::cost(&text, &schema("true"), true).is_some(), "{name}");
        assert_eq!(
            compile::compile(&text, &[("self", types::StaticType::Dyn)]).map(|it| it.to_string()),
            Ok("bool".into()),
            "{name}"
        );
    }
}

/// The separator is read twice: for the count, and for the call.
#[test]
fn nested_separators_are_evaluated_once() {
    let rule = format!("{} != ''", parsing::tests::nested("['a', 'b'].join(", "'c'", ")", 40));
    assert_eq!(messages(&rule, &json!({})), Vec::<String>::new());
}

#[test]
fn sets_are_compared_within_the_limits() {
    let value = json!({"l": (0..100).collect::<Vec<_>>()});
    for rule in [
        "sets.contains(self.l, [1, 2, 3])",
        "sets.equivalent(self.l, self.l) && !sets.intersects(self.l, [-1])",
    ] {
        assert_eq!(messages(rule, &value), Vec::<String>::new(), "{rule}");
    }
}

/// As in kube-apiserver: rules that are false about unchanged values are tolerated, but not those that cannot be evaluated.
#[test]
fn only_false_rules_about_unchanged_values_are_tolerated() {
    let schema = |rule: &str| {
        Schema::from_json(
            &json!({"type": "object", "properties": {"s": {"type": "string"}, "f": {"type": "object",
            "properties": {"n": {"type": "integer"}}, "x-kubernetes-validations": [{"rule": rule}]}}}),
        )
    };
    let (old, new) = (json!({"f": {}}), json!({"f": {}, "s": "x"}));
    let found = |rule: &str, new: &Value| check_within(LIMITS_OF_TESTS, new, Some(&old), &schema(rule));
    assert_eq!(found("has(self.n)", &new), []);
    let errors = found("self.n > 0", &new);
    assert_eq!(errors.len(), 1, "{errors:?}");
    assert_eq!(errors[0].message, "Invalid value: \"object\": no such key: n evaluating rule: self.n > 0");
    assert_eq!(found("self.n > 0", &json!({"f": {"n": 0}})).len(), 1);
    assert_eq!(found("oldSelf.n > 0", &new).len(), 1);
}
