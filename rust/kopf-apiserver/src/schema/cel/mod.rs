//! CEL rules of CRDs (`x-kubernetes-validations`): variables, functions of Kubernetes, and messages. A CEL library
//! evaluates them.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

use cel::common::ast::IdedExpr;
use cel::objects::OptionalValue;
use cel::{Context, Env, extensions};
use serde_json::Value;

use super::correlation::OldItems;
use super::{Schema, Type};
use crate::base::field_path::join;
use crate::error::status::Cause;

use cost::{Exceeded, LIMITS, Limits, Meter};

pub(crate) mod authorizer;
pub(crate) mod budget;
pub(crate) mod compile;
mod cost;
mod escaping;
mod estimate;
pub(crate) mod evaluation;
mod libraries;
mod named_formats;
mod sizes;
mod values;

type Cel = cel::Value;

static ENV: LazyLock<Arc<Env>> = LazyLock::new(|| {
    let mut env = Env::stdlib();
    for extension in [extensions::strings, extensions::math, extensions::lists] {
        // Fails only if the library has the function already.
        let _ = env.add_extension(extension);
    }
    Arc::new(env)
});

/// A validation rule.
#[derive(Debug)]
pub(crate) struct Rule {
    text: String,
    program: Result<IdedExpr, String>,
    message: String,
    message_expression: Option<IdedExpr>,
    reason: &'static str,
    field_path: String,
    transition: bool,
    optional_old: bool,
}

impl Rule {
    pub(crate) fn from_json(json: &Value) -> Self {
        let text = |key: &str| json.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
        let rule = text("rule");
        let program = ENV.compile(&rule).map_err(|e| e.to_string());
        let transition = program.as_ref().is_ok_and(|p| p.references().has_variable("oldSelf"));
        let metered = |program: cel::Program| cost::metered(program.expression(), &["self", "oldSelf"]);
        Self {
            program: program.map(metered),
            message: text("message"),
            message_expression: json
                .get("messageExpression")
                .and_then(Value::as_str)
                .and_then(|t| ENV.compile(t).ok())
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

    /// Evaluates the rule. `Ok(Some)` is its failure; `Err` ends the evaluation of all rules.
    fn evaluate(
        &self,
        context: &mut Context,
        (value, path): (&Value, &str),
        meter: &mut Meter,
    ) -> Result<Option<Cause>, Cause> {
        let Ok(program) = &self.program else { return Ok(None) };
        let path = if self.field_path.is_empty() {
            path.to_owned()
        } else {
            join(path, self.field_path.trim_start_matches('.'))
        };
        let field = if path.is_empty() { "<nil>".to_owned() } else { path };
        meter.begin(context);
        let result = Cel::resolve(program, context);
        if let Some(exceeded) = meter.end() {
            return Err(self.too_expensive(field, exceeded));
        }
        match result {
            Ok(Cel::Bool(true)) => Ok(None),
            Ok(_) => Ok(Some(self.failure(field, value, &self.message(context, meter)))),
            Err(error) => {
                let detail = format!("{} evaluating rule: {}", error_text(&error), self.plain_message());
                let shown = format!("\"{}\"", super::validate::type_of(value));
                Ok(Some(Cause::invalid_raw(field, &shown, &detail)))
            }
        }
    }

    fn too_expensive(&self, field: String, exceeded: Exceeded) -> Cause {
        let detail = match exceeded {
            Exceeded::Call => format!(
                "'operation cancelled: actual cost limit exceeded': no further validation rules will be run due to call cost \
                 exceeds limit for rule: {}",
                self.plain_message()
            ),
            Exceeded::Object => {
                "validation failed due to running out of cost budget, no further validation rules will be run"
                    .to_owned()
            }
        };
        Cause::invalid_raw(field, "\"object\"", &detail)
    }

    fn failure(&self, field: String, value: &Value, message: &str) -> Cause {
        let is_scalar = !value.is_object() && !value.is_array();
        let message = match self.reason {
            "FieldValueForbidden" => format!("Forbidden: {message}"),
            "FieldValueRequired" => format!("Required value: {message}"),
            "FieldValueDuplicate" => format!("Duplicate value: {message}"),
            _ if is_scalar => return Cause::invalid(field, value, message),
            _ => format!("Invalid value: {message}"),
        };
        Cause { field, reason: self.reason, message }
    }

    fn plain_message(&self) -> String {
        if self.message.is_empty() {
            format!("failed rule: {}", self.text.trim())
        } else {
            self.message.clone()
        }
    }

    fn message(&self, context: &mut Context, meter: &mut Meter) -> String {
        let Some(expression) = &self.message_expression else { return self.plain_message() };
        meter.begin(context);
        let message = Cel::resolve(expression, context);
        match message {
            Ok(Cel::String(text)) if meter.end().is_none() && !text.trim().is_empty() => {
                text.trim().to_owned()
            }
            _ => self.plain_message(),
        }
    }
}

fn error_text(error: &cel::ExecutionError) -> String {
    match error {
        cel::ExecutionError::NoSuchKey(key) => format!("no such key: {key}"),
        cel::ExecutionError::IndexOutOfBounds(Cel::Int(index)) => format!("index out of bounds: {index}"),
        cel::ExecutionError::DivisionByZero(_) => "division by zero".to_owned(),
        cel::ExecutionError::RemainderByZero(_) => "modulus by zero".to_owned(),
        cel::ExecutionError::FunctionError { function, .. }
            if matches!(function.as_str(), "int" | "uint" | "double") =>
        {
            format!("type conversion error from 'string' to '{function}'")
        }
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

/// Evaluates all rules within `INLINE_COST_LIMIT`; `None` if they exceed it. `old` is the stored object.
pub(crate) fn check_inline(value: &Value, old: Option<&Value>, schema: &Schema) -> Option<Vec<Cause>> {
    let mut checker =
        Checker { meter: Meter::new(Limits { object: INLINE_COST_LIMIT, ..LIMITS }), causes: Vec::new() };
    checker.check(value, old, schema, ("", false)).ok().map(|()| checker.causes)
}

/// Evaluates all rules within the limits.
pub(crate) fn check(value: &Value, old: Option<&Value>, schema: &Schema) -> Vec<Cause> {
    check_within(LIMITS, value, old, schema)
}

fn check_within(limits: Limits, value: &Value, old: Option<&Value>, schema: &Schema) -> Vec<Cause> {
    let mut checker = Checker { meter: Meter::new(limits), causes: Vec::new() };
    if let Err(cause) = checker.check(value, old, schema, ("", false)) {
        checker.causes.push(cause);
    }
    checker.causes
}

struct Checker {
    meter: Meter,
    causes: Vec<Cause>,
}

impl Checker {
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
            // Failures about values that have not changed are tolerated.
            if is_unchanged && !rule.transition {
                continue;
            }
            let mut context = Context::with_env(ENV.clone());
            libraries::add_functions(&mut context);
            context.add_variable_from_value("self", to_cel(value, schema));
            let old = old.map(|old| to_cel(old, schema));
            if rule.optional_old {
                let optional = old.map_or_else(OptionalValue::none, OptionalValue::of);
                context.add_variable_from_value("oldSelf", Cel::Opaque(Arc::new(optional)));
            } else if let Some(old) = old {
                context.add_variable_from_value("oldSelf", old);
            }
            self.causes.extend(rule.evaluate(&mut context, (value, path), &mut self.meter)?);
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

fn to_cel(value: &Value, schema: &Schema) -> Cel {
    match value {
        Value::Null => Cel::Null,
        Value::Bool(b) => Cel::Bool(*b),
        Value::Number(n) => match n.as_i64() {
            Some(whole) if schema.kind != Type::Number => Cel::Int(whole),
            _ => Cel::Float(n.as_f64().unwrap_or_default()),
        },
        Value::String(text) => text_to_cel(text, schema),
        Value::Array(list) => {
            let any = Schema::any();
            let items = schema.items.as_deref().unwrap_or(&any);
            Cel::List(Arc::new(list.iter().map(|v| to_cel(v, items)).collect()))
        }
        Value::Object(map) => {
            let any = Schema::any();
            let mut pairs = HashMap::with_capacity(map.len());
            for (key, child) in map {
                let child = to_cel(child, schema.child(key).map_or(&any, |s| s));
                if !schema.properties.contains_key(key) {
                    pairs.insert(key.clone(), child);
                    continue;
                }
                if escaping::is_reserved(key) {
                    pairs.insert(key.clone(), child.clone());
                }
                pairs.insert(escaping::escaped(key).into_owned(), child);
            }
            pairs.into()
        }
    }
}

fn text_to_cel(text: &str, schema: &Schema) -> Cel {
    let format = schema.checks.as_ref().map_or("", |c| c.format.as_str());
    let converted = match format {
        "date-time" | "datetime" => convert("timestamp", text),
        "duration" => convert("duration", text),
        _ => None,
    };
    converted.unwrap_or_else(|| Cel::String(Arc::new(text.to_owned())))
}

/// Converts a string to a timestamp or a duration, by the library's function.
fn convert(function: &str, text: &str) -> Option<Cel> {
    let mut context = Context::with_env(ENV.clone());
    context.add_variable_from_value("text", Cel::String(Arc::new(text.to_owned())));
    ENV.compile(&format!("{function}(text)")).ok()?.execute(&context).ok()
}

#[cfg(test)]
mod tests;
