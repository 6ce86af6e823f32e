//! Limits of the estimated costs of a CRD's rules: for each expression, and for all expressions of a version.

use super::super::Schema;
use super::estimate;
use super::sizes::{MAX_REQUEST, min_size};
use crate::error::status::Cause;

/// Limit of one expression, for all values of an object.
const EXPRESSION_LIMIT: u64 = 10_000_000;
/// Limit of all expressions of a version.
const TOTAL_LIMIT: u64 = 100_000_000;
/// If the total is exceeded, so many of the most expensive expressions are named, but none that costs less than this.
const MAX_NAMED: usize = 4;
const NAMED_FROM: u64 = TOTAL_LIMIT / 100;
const ADVICE: &str = "try simplifying the rule, or adding maxItems, maxProperties, and maxLength where arrays, maps, and strings are declared";

/// Estimated costs of the rules of a version's schema.
#[derive(Debug, Default)]
pub(crate) struct Budget {
    total: u64,
    /// The most expensive expressions first.
    expensive: Vec<(u64, String)>,
}

/// The position of a schema in the version's schema.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Position {
    is_root: bool,
    /// How many values of the schema an object can have; `None` without a limit.
    count: Option<u64>,
}

impl Position {
    pub(crate) const ROOT: Self = Self { is_root: true, count: Some(1) };

    /// Whether it is the root of a resource.
    pub(crate) fn is_root(self) -> bool {
        self.is_root
    }

    /// The position of a property.
    pub(crate) fn property(self) -> Self {
        Self { is_root: false, ..self }
    }

    /// The position of items, or of additional properties, which may be so many.
    pub(crate) fn items(self, limit: Option<u64>) -> Self {
        let count = self.count.zip(limit).map(|(outer, inner)| outer.saturating_mul(inner));
        Self { is_root: false, count }
    }
}

impl Budget {
    /// Counts an expression of a rule, which has this key, and reports it if it is too expensive.
    pub(crate) fn count(
        &mut self,
        text: &str,
        key: &str,
        schema: &Schema,
        position: Position,
        path: &str,
        out: &mut Vec<Cause>,
    ) {
        let Some(cost) = estimate::cost(text, schema, position.is_root) else { return };
        // Without a limit, as many as fit into a request, with a comma each.
        let count = position.count.unwrap_or_else(|| MAX_REQUEST / (min_size(schema).unwrap_or(0) + 1));
        let cost = cost.saturating_mul(count);
        if cost > EXPRESSION_LIMIT {
            let name = format!("estimated {key} cost");
            out.push(Cause::forbidden(path, &exceeded(&name, cost, EXPRESSION_LIMIT)));
        }
        self.total = self.total.saturating_add(cost);
        if cost >= NAMED_FROM {
            let place = self.expensive.partition_point(|(other, _)| *other >= cost);
            self.expensive.insert(place, (cost, path.to_owned()));
            self.expensive.truncate(MAX_NAMED);
        }
    }

    /// Reports an exceeded total.
    pub(crate) fn finish(self, path: &str, out: &mut Vec<Cause>) {
        if self.total <= TOTAL_LIMIT {
            return;
        }
        for (_, path) in self.expensive {
            let detail =
                "contributed to estimated rule cost total exceeding cost limit for entire OpenAPIv3 schema";
            out.push(Cause::forbidden(path, detail));
        }
        let name = "x-kubernetes-validations estimated rule cost total for entire OpenAPIv3 schema";
        out.push(Cause::forbidden(path.to_owned(), &exceeded(name, self.total, TOTAL_LIMIT)));
    }
}

fn exceeded(name: &str, cost: u64, limit: u64) -> String {
    #[expect(clippy::cast_precision_loss, reason = "a factor for people")]
    let factor = cost as f64 / limit as f64;
    let factor = if factor > 100.0 {
        "more than 100x".to_owned()
    } else if factor < 1.5 {
        format!("{factor:.6}x")
    } else {
        format!("{factor:.1}x")
    };
    format!("{name} exceeds budget by factor of {factor} ({ADVICE})")
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use crate::registry::crd::validation::validate;

    /// The causes of a rejected CRD whose `spec` has these properties and rules, as field and message.
    fn causes(properties: &Value, rules: &[&str]) -> Vec<(String, String)> {
        let rules: Vec<Value> = rules.iter().map(|rule| json!({"rule": rule})).collect();
        let spec = json!({"type": "object", "properties": properties, "x-kubernetes-validations": rules});
        let schema = json!({"type": "object", "properties": {"spec": spec}});
        let version =
            json!({"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}});
        let names =
            json!({"plural": "things", "singular": "thing", "kind": "Thing", "listKind": "ThingList"});
        let spec =
            json!({"group": "example.com", "scope": "Namespaced", "names": names, "versions": [version]});
        let causes = validate(&json!({"metadata": {"name": "things.example.com"}, "spec": spec}), None);
        causes.into_iter().map(|cause| (cause.field, cause.message)).collect()
    }

    /// The factors of the exceeded limits: of the first rule, and of all rules.
    fn factors(properties: &Value, rules: &[&str]) -> Vec<String> {
        let exceeded = causes(properties, rules).into_iter().filter_map(|(_, message)| {
            let (_, rest) = message.split_once("by factor of ")?;
            Some(rest.split_once(" (")?.0.to_owned())
        });
        exceeded.collect()
    }

    // The expected factors are those of kube-apiserver 1.36; tests/real/test_rule_costs.py compares both servers.
    #[test]
    fn costs_are_those_of_kube_apiserver() {
        let numbers =
            |limit: u64| json!({"l": {"type": "array", "maxItems": limit, "items": {"type": "integer"}}});
        let texts =
            |limit: u64| json!({"l": {"type": "array", "maxItems": limit, "items": {"type": "string"}}});
        let names =
            json!({"l": {"type": "array", "maxItems": 2000, "items": {"type": "string", "maxLength": 64}}});
        let free = json!({"l": {"type": "array", "items": {"type": "integer"}}, "t": {"type": "string"}});
        let more = "more than 100x";
        for (properties, rule, expected) in [
            (&free, "self.l.all(x, x > 0)", &[][..]),
            (&free, "self.l.all(x, self.l.all(y, x == y))", &[more, more]),
            (&free, "self.t.split(',').all(x, x == 'a')", &["1.321205x"]),
            (&free, "self.t.matches('^[a-z]+$')", &[]),
            (&numbers(100), "self.l.all(x, self.l.all(y, x == y))", &[]),
            (&numbers(3000), "self.l.all(x, self.l.all(y, x > y))", &["5.4x"]),
            (&numbers(300), "self.l.all(x, self.l.all(y, self.l.all(z, x+y+z>0)))", &["24.4x", "2.4x"]),
            (&texts(10), "self.l.all(x, x.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$'))", &["2.5x"]),
            (&names, "self.l.all(x, self.l.exists_one(y, x == y))", &["12.0x", "1.200140x"]),
        ] {
            assert_eq!(factors(properties, &[rule]), expected, "{rule}");
        }
    }

    // As above.
    #[test]
    fn costs_of_functions_are_those_of_kube_apiserver() {
        let text = json!({"type": "string"});
        let name = json!({"type": "string", "maxLength": 64});
        let list = |items: &Value, limit: u64| json!({"type": "array", "maxItems": limit, "items": items});
        let number = json!({"type": "integer"});
        let properties = json!({"t": text, "b": {"type": "string", "format": "byte"}, "texts": {"type": "array", "items": text},
            "a": {"type": "array", "items": number}, "lists": list(&list(&number, 10), 900_000),
            "numbers": list(&number, 3000), "names": list(&name, 3000), "few": list(&name, 100),
            "limits": {"type": "object", "additionalProperties": text}});
        let more = "more than 100x";
        for (rule, expected) in [
            ("self.texts.all(x, isIP(x))", &[more, more][..]),
            ("self.texts.all(x, isCIDR(x) && cidr(x).containsIP('10.0.0.1'))", &[more, more]),
            ("self.limits.all(k, isQuantity(self.limits[k]))", &[more, more]),
            ("self.names.all(x, isQuantity(x) && ip.isCanonical(x) && isSemver(x, true))", &[]),
            ("self.texts.all(x, bytes(x) == b'a')", &[more, more]),
            ("sets.contains(self.a, self.a)", &[more, more]),
            ("sets.equivalent(self.numbers, self.numbers)", &["1.8x"]),
            ("sets.intersects(self.few, self.names)", &[]),
            ("self.a.distinct().size() == self.a.size()", &[more, more]),
            ("self.numbers.sort() == self.numbers", &["1.8x"]),
            ("self.names.sort() == self.names", &["1.9x"]),
            ("self.names.sortBy(x, x.size()) == self.names", &["1.8x"]),
            ("self.few.distinct() == self.few", &[]),
            ("lists.range(20000000).size() > 1", &["2.0x"]),
            ("lists.range(self.a.size()).size() > 1", &[more, more]),
            ("self.a.reverse().all(x, x + 1 + 2 + 3 + 4 + 5 + 6 > 1)", &["1.9x"]),
            ("self.lists.flatten(20).size() > 1", &["1.8x"]),
            ("self.a.slice(0, 20000000).size() > 1", &["2.0x"]),
            ("!format.dns1123Label().validate(self.t).hasValue()", &["1.006634x"]),
        ] {
            assert_eq!(factors(&properties, &[rule]), expected, "{rule}");
        }
    }

    #[test]
    fn the_total_names_the_most_expensive_rules() {
        let list = |limit: u64| json!({"type": "array", "maxItems": limit, "items": {"type": "integer"}});
        let properties = json!({"small": list(190_000), "l": list(300_000), "u": list(1_000_000)});
        let cheap = "self.small.all(x, x > 0)";
        let rules = [cheap, "self.l.all(x, x > 0)", "self.u.all(x, self.u.all(y, x == y))"];
        let path = "spec.validation.openAPIV3Schema.properties[spec].x-kubernetes-validations";
        let fields: Vec<String> = causes(&properties, &rules).into_iter().map(|(field, _)| field).collect();
        let rule = |number: usize| format!("{path}[{number}].rule");
        assert_eq!(fields, [rule(2), rule(2), rule(1), "spec.validation.openAPIV3Schema".to_owned()]);
    }
}
