//! CEL rules of CRDs (`x-kubernetes-validations`): variables, functions of Kubernetes, and messages. A CEL library
//! evaluates them.

use std::sync::{Arc, LazyLock};

use cel::common::types::CelOptional;
use cel::{Context, Env, extensions};
use serde_json::Value;

use super::correlation::OldItems;
use super::{Schema, Type};
use crate::base::field_path::join;
use crate::error::status::Cause;

use conversion::to_val;
use cost::{Exceeded, LIMITS, Limits, Meter};
use parsing::{Parsed, Program, parse};

pub(crate) mod authorizer;
pub(crate) mod budget;
mod checker;
pub(crate) mod compile;
mod comprehensions;
mod conversion;
mod cost;
mod depth;
mod escaping;
mod estimate;
pub(crate) mod evaluation;
mod formatting;
mod libraries;
mod lists;
pub(crate) mod literals;
mod named_formats;
mod overloads;
mod parsing;
mod sizes;
mod texts;
pub(crate) mod types;
mod values;
pub(crate) mod variables;

type Cel = cel::Value;

static ENV: LazyLock<Arc<Env>> = LazyLock::new(|| {
    let mut env = Env::stdlib();
    for extension in [extensions::strings, extensions::lists] {
        // Fails only if the library has the function already.
        let _ = env.add_extension(extension);
    }
    comprehensions::add_macros(&mut env);
    Arc::new(env)
});

/// A validation rule.
#[derive(Debug)]
pub(crate) struct Rule {
    text: String,
    /// `None` if the rule cannot be parsed.
    program: Option<Program>,
    message: String,
    message_expression: Option<Program>,
    reason: &'static str,
    field_path: String,
    transition: bool,
    optional_old: bool,
}

impl Rule {
    pub(crate) fn from_json(json: &Value) -> Self {
        let text = |key: &str| json.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
        let rule = text("rule");
        let program = parse(&rule).ok();
        let transition = program.as_ref().is_some_and(|parsed| parsed.has_variable("oldSelf"));
        let metered = |parsed: Parsed| parsed.metered(&["self", "oldSelf"]);
        Self {
            program: program.map(metered),
            message: text("message"),
            message_expression: json
                .get("messageExpression")
                .and_then(Value::as_str)
                .and_then(|text| parse(text).ok())
                .map(metered),
            reason: match text("reason").as_str() {
                "FieldValueForbidden" => "FieldValueForbidden",
                "FieldValueRequired" => "FieldValueRequired",
                "FieldValueDuplicate" => "FieldValueDuplicate",
                _ => "FieldValueInvalid",
            },
            field_path: text("fieldPath"),
            transition,
            optional_old: json.get("optionalOldSelf").and_then(Value::as_bool).unwrap_or(false),
            text: rule,
        }
    }

    /// Evaluates the rule. `Err` ends the evaluation of all rules.
    fn evaluate(
        &self,
        context: &mut Context,
        (value, schema, path): (&Value, &Schema, &str),
        meter: &mut Meter,
    ) -> Result<Option<Failure>, Cause> {
        let Some(program) = &self.program else { return Ok(None) };
        let field = |path: &str| if path.is_empty() { "<nil>".to_owned() } else { path.to_owned() };
        let invalid = |detail: &str| {
            Cause::invalid_raw(field(path), &format!("\"{}\"", type_name(schema.kind)), detail)
        };
        meter.begin(context);
        let result = program.evaluate(context);
        if let Some(exceeded) = meter.end() {
            return Err(invalid(&self.too_expensive(exceeded)));
        }
        match result {
            Ok(Cel::Bool(true)) => Ok(None),
            Ok(_) => {
                let path = match self.field_path.as_str() {
                    "" => path.to_owned(),
                    below => join(path, &relative_path(below, schema)),
                };
                let message = self.message(context, meter);
                Ok(Some(Failure::False(self.failure(field(&path), (value, schema), &message))))
            }
            Err(error) => Ok(Some(Failure::Error(invalid(&self.evaluation_error(&error))))),
        }
    }

    fn evaluation_error(&self, error: &cel::ExecutionError) -> String {
        let (error, rule) = (error_text(error), self.shown_rule());
        if error.starts_with("no such overload") {
            let why =
                "call arguments did not match a supported operator, function or macro signature for rule";
            return format!("'{error}': {why}: {rule}");
        }
        format!("{error} evaluating rule: {rule}")
    }

    fn too_expensive(&self, exceeded: Exceeded) -> String {
        match exceeded {
            Exceeded::Call => format!(
                "'operation cancelled: actual cost limit exceeded': no further validation rules will be run due to call cost \
                 exceeds limit for rule: {}",
                self.shown_rule()
            ),
            Exceeded::Object => {
                "validation failed due to running out of cost budget, no further validation rules will be run"
                    .to_owned()
            }
        }
    }

    fn failure(&self, field: String, (value, schema): (&Value, &Schema), message: &str) -> Cause {
        let is_shown = !matches!(schema.kind, Type::Object | Type::Array);
        let message = match self.reason {
            "FieldValueForbidden" => format!("Forbidden: {message}"),
            "FieldValueRequired" => format!("Required value: {message}"),
            "FieldValueDuplicate" if is_shown => return Cause::duplicate(field, value),
            "FieldValueDuplicate" => "Duplicate value".to_owned(),
            _ if is_shown => return Cause::invalid(field, value, message),
            _ => format!("Invalid value: {message}"),
        };
        Cause { field, reason: self.reason, message }
    }

    fn plain_message(&self) -> String {
        if self.message.is_empty() {
            format!("failed rule: {}", self.text.trim())
        } else {
            self.message.trim().to_owned()
        }
    }

    /// The message, else the rule itself.
    fn shown_rule(&self) -> &str {
        if self.message.is_empty() { self.text.trim() } else { self.message.trim() }
    }

    fn message(&self, context: &mut Context, meter: &mut Meter) -> String {
        let Some(expression) = &self.message_expression else { return self.plain_message() };
        meter.begin(context);
        let message = expression.evaluate(context);
        let exceeded = meter.end();
        if let (Ok(Cel::String(text)), None) = (message, exceeded) {
            let text = text.trim();
            if !text.is_empty() && text.len() <= MAX_MESSAGE && !text.contains('\n') {
                return text.to_owned();
            }
        }
        self.plain_message()
    }
}

/// Why a rule does not hold.
enum Failure {
    False(Cause),
    /// It cannot be evaluated.
    Error(Cause),
}

/// Maximum length of an evaluated message, in bytes.
const MAX_MESSAGE: usize = 5 * 1024;

/// The `fieldPath` of a rule, as messages show it: keys of maps are in brackets.
fn relative_path(path: &str, schema: &Schema) -> String {
    let (mut out, mut rest, mut schema) = (String::new(), path, Some(schema));
    while !rest.is_empty() {
        let quoted = rest.strip_prefix("['").and_then(|quoted| quoted.split_once("']"));
        let (name, tail) = quoted.unwrap_or_else(|| {
            let named = rest.trim_start_matches('.');
            named.split_at(named.find(['.', '[']).unwrap_or(named.len()))
        });
        schema = match schema {
            Some(map) if map.properties.is_empty() => {
                out.extend(["[", name, "]"]);
                map.additional.as_deref()
            }
            known => {
                out = join(&out, name);
                known.and_then(|it| it.properties.get(name)).map(AsRef::as_ref)
            }
        };
        if tail.len() == rest.len() {
            break;
        }
        rest = tail;
    }
    out
}

/// The name of a type in a schema.
fn type_name(kind: Type) -> &'static str {
    match kind {
        Type::Object => "object",
        Type::Array => "array",
        Type::String => "string",
        Type::Integer => "integer",
        Type::Number => "number",
        Type::Boolean => "boolean",
        _ => "",
    }
}

fn error_text(error: &cel::ExecutionError) -> String {
    use cel::ExecutionError as Error;
    match error {
        Error::NoSuchKey(key) => format!("no such key: {key}"),
        Error::IndexOutOfBounds(Cel::Int(index)) => format!("index out of bounds: {index}"),
        Error::DivisionByZero(_) => "division by zero".to_owned(),
        Error::RemainderByZero(_) => "modulus by zero".to_owned(),
        Error::Overflow(_, Cel::Int(_), _) => "integer overflow".to_owned(),
        Error::Overflow(_, Cel::UInt(_), _) => "unsigned integer overflow".to_owned(),
        Error::NoSuchOverload(_)
        | Error::UnexpectedType { .. }
        | Error::UnsupportedBinaryOperator(..)
        | Error::UnsupportedIndex(..)
        | Error::UnsupportedKeyType(_)
        | Error::ValuesNotComparable(..) => "no such overload".to_owned(),
        Error::FunctionError { function, message }
            if matches!(function.as_str(), "bool" | "double" | "duration" | "int" | "timestamp" | "uint") =>
        {
            if message.ends_with("overflow") {
                return message.clone();
            }
            let to = match function.as_str() {
                "duration" => "google.protobuf.Duration",
                "timestamp" => "google.protobuf.Timestamp",
                other => other,
            };
            format!("type conversion error from 'string' to '{to}'")
        }
        Error::FunctionError { message, .. } => message.clone(),
        other => other.to_string(),
    }
}

/// Whether a schema has rules at any level.
pub(crate) fn has_rules(schema: &Schema) -> bool {
    !schema.rules.is_empty()
        || schema.properties.values().any(|s| has_rules(s))
        || schema.items.as_deref().is_some_and(has_rules)
        || schema.additional.as_deref().is_some_and(has_rules)
}

/// Cost limit of evaluations on the request's task. A unit takes less than a microsecond.
const INLINE_COST_LIMIT: u64 = 20_000;

/// The violated rules of an object.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Violations {
    pub(crate) causes: Vec<Cause>,
    /// Rules that are false about values that the update does not change.
    pub(crate) tolerated: Vec<Cause>,
}

/// Evaluates all rules within `INLINE_COST_LIMIT`; `None` if they exceed it. `old` is the stored object.
pub(crate) fn check_inline(value: &Value, old: Option<&Value>, schema: &Schema) -> Option<Violations> {
    let mut checker = Checker::new(Limits { object: INLINE_COST_LIMIT, ..LIMITS });
    checker.check(value, old, schema, ("", false)).ok().map(|()| checker.violations)
}

/// Evaluates all rules within the limits.
pub(crate) fn check(value: &Value, old: Option<&Value>, schema: &Schema) -> Violations {
    violations(LIMITS, value, old, schema)
}

fn violations(limits: Limits, value: &Value, old: Option<&Value>, schema: &Schema) -> Violations {
    let mut checker = Checker::new(limits);
    if let Err(cause) = checker.check(value, old, schema, ("", false)) {
        checker.violations.causes.push(cause);
    }
    checker.violations
}

struct Checker {
    meter: Meter,
    violations: Violations,
}

impl Checker {
    fn new(limits: Limits) -> Self {
        Self { meter: Meter::new(limits), violations: Violations::default() }
    }

    fn check(
        &mut self,
        value: &Value,
        old: Option<&Value>,
        schema: &Schema,
        (path, is_unchanged): (&str, bool),
    ) -> Result<(), Cause> {
        if !has_rules(schema) || value.is_null() {
            return Ok(());
        }
        let is_unchanged = is_unchanged || old == Some(value);
        for rule in &schema.rules {
            if rule.transition && old.is_none() && !rule.optional_old {
                continue;
            }
            let mut context = Context::with_env(ENV.clone());
            libraries::add_functions(&mut context);
            context.add_variable_as_val("self", to_val(value, schema));
            let old = old.map(|old| to_val(old, schema));
            if rule.optional_old {
                let optional = old.map_or_else(CelOptional::none, CelOptional::of);
                context.add_variable_as_val("oldSelf", Box::new(optional));
            } else if let Some(old) = old {
                context.add_variable_as_val("oldSelf", old);
            }
            let violations = &mut self.violations;
            match rule.evaluate(&mut context, (value, schema, path), &mut self.meter)? {
                Some(Failure::False(cause)) if is_unchanged && !rule.transition => {
                    violations.tolerated.push(cause);
                }
                Some(Failure::False(cause) | Failure::Error(cause)) => violations.causes.push(cause),
                None => {}
            }
        }
        match value {
            Value::Object(map) => {
                for (key, child) in map {
                    if let Some(known) = schema.child(key) {
                        let old = old.and_then(|o| o.get(key));
                        self.check(child, old, known, (&join(path, key), is_unchanged))?;
                    }
                }
            }
            Value::Array(list) => {
                let Some(items) = &schema.items else { return Ok(()) };
                let old_items = OldItems::new(old, schema);
                for (i, item) in list.iter().enumerate() {
                    let old = old_items.get(item);
                    self.check(item, old, items, (&format!("{path}[{i}]"), is_unchanged))?;
                }
            }
            _ => {}
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
