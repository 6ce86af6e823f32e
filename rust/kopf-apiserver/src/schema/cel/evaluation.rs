//! Expressions with any variables: the conditions of webhooks, and the validations of policies.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use cel::Context;
use cel::common::value::Val;
use serde_json::Value;

use super::authorizer::{self, Authorizer};
use super::cost::{Exceeded, LIMITS, Limits, Meter};
use super::parsing::{Program, parse};
use super::{Cel, ENV, INLINE_COST_LIMIT, error_text, libraries, to_val};
use crate::schema::Schema;

/// Value of an expression.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Bool(bool),
    Text(String),
    Other,
}

/// A compiled expression.
#[derive(Debug)]
struct Compiled {
    program: Program,
    /// Whether it reads declared variables (`variables.x`).
    reads_declared: bool,
}

type CompileResult = Result<Arc<Compiled>, String>;

/// Compiled expressions by their texts. Cleared when it is full.
static COMPILED: LazyLock<Mutex<HashMap<String, CompileResult>>> = LazyLock::new(Mutex::default);
const COMPILED_LIMIT: usize = 1_000;

/// Names of variables.
const NAMES: [&str; 7] =
    ["object", "oldObject", "request", "params", "namespaceObject", "authorizer", "variables"];

fn compile(text: &str) -> Result<Arc<Compiled>, String> {
    let lock = || COMPILED.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = lock().get(text) {
        return known.clone();
    }
    let compiled = parse(text)
        .map_err(|errors| errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))
        .map(|parsed| {
            let reads_declared = parsed.has_variable("variables");
            Arc::new(Compiled { program: parsed.metered(&NAMES), reads_declared })
        });
    let mut all = lock();
    if all.len() >= COMPILED_LIMIT {
        all.clear();
    }
    all.insert(text.to_owned(), compiled.clone());
    compiled
}

/// Names and values of variables, and the authorizer.
pub(crate) struct Inputs {
    pub(crate) values: Vec<(&'static str, Value)>,
    pub(crate) authorizer: Authorizer,
    /// Members of `authorizer.requestResource`.
    pub(crate) request_resource: Vec<(&'static str, String)>,
}

/// Evaluation of expressions with the same variables, within one cost limit.
pub(crate) struct Evaluation {
    values: Vec<(&'static str, Box<dyn Val>)>,
    authorizer: Authorizer,
    /// Names and expressions of declared variables that are not evaluated yet.
    declared: Vec<(String, String)>,
    variables: HashMap<String, Cel>,
    /// Errors of declared variables.
    failed: HashMap<String, String>,
    meter: Meter,
    is_exhausted: bool,
}

impl Evaluation {
    /// With these variables. `is_inline` is for the task of a request: with a lower limit of all costs.
    pub(crate) fn new(inputs: &Inputs, is_inline: bool) -> Self {
        let object = if is_inline { INLINE_COST_LIMIT } else { LIMITS.object };
        let any = Schema::any();
        let mut values: Vec<_> =
            inputs.values.iter().map(|(name, value)| (*name, to_val(value, &any))).collect();
        values
            .extend(authorizer::value(&inputs.request_resource).try_into().ok().map(|it| ("authorizer", it)));
        Self {
            values,
            authorizer: Arc::clone(&inputs.authorizer),
            declared: Vec::new(),
            variables: HashMap::new(),
            failed: HashMap::new(),
            meter: Meter::new(Limits { object, ..LIMITS }),
            is_exhausted: false,
        }
    }

    /// Whether an expression has exceeded the limit of all costs.
    pub(crate) fn is_exhausted(&self) -> bool {
        self.is_exhausted
    }

    /// Declares `variables.NAME`, which is evaluated when an expression reads it. It may read earlier ones.
    pub(crate) fn declare(&mut self, name: &str, text: &str) {
        self.declared.push((name.to_owned(), text.to_owned()));
    }

    /// Evaluates an expression. The error is the message of kube-apiserver.
    pub(crate) fn evaluate(&mut self, text: &str) -> Result<Outcome, String> {
        match self.resolve(text) {
            Ok(Cel::Bool(value)) => Ok(Outcome::Bool(value)),
            Ok(Cel::String(value)) => Ok(Outcome::Text(value.to_string())),
            Ok(_) => Ok(Outcome::Other),
            Err(error) => Err(format!("expression '{text}' resulted in error: {error}")),
        }
    }

    fn resolve(&mut self, text: &str) -> Result<Cel, String> {
        let compiled = compile(text)?;
        if compiled.reads_declared {
            self.evaluate_declared();
        }
        let mut context = Context::with_env(ENV.clone());
        libraries::add_functions(&mut context);
        authorizer::add_functions(&mut context, &self.authorizer);
        for (name, value) in &self.values {
            context.add_variable_as_val(*name, value.clone());
        }
        if compiled.reads_declared {
            context.add_variable_from_value("variables", self.variables.clone());
        }
        self.meter.begin(&mut context);
        let result = compiled.program.evaluate(&context);
        match self.meter.end() {
            Some(Exceeded::Call) => return Err("operation cancelled: actual cost limit exceeded".to_owned()),
            Some(Exceeded::Object) => {
                self.is_exhausted = true;
                return Err(
                    "validation failed due to running out of cost budget, no further validation rules will be run".to_owned()
                );
            }
            None => {}
        }
        result.map_err(|error| match &error {
            cel::ExecutionError::NoSuchKey(key)
                if compiled.reads_declared && self.failed.contains_key(&**key) =>
            {
                let cause = self.failed.get(&**key).map_or("", String::as_str);
                format!("composited variable \"{key}\" fails to evaluate: {cause}")
            }
            _ => error_text(&error),
        })
    }

    fn evaluate_declared(&mut self) {
        for (name, text) in std::mem::take(&mut self.declared) {
            match self.resolve(&text) {
                Ok(value) => drop(self.variables.insert(name, value)),
                Err(error) => drop(self.failed.insert(name, error)),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn inputs(object: Value) -> Inputs {
        Inputs {
            values: vec![("object", object), ("oldObject", Value::Null)],
            authorizer: Arc::new(|check| {
                check.verb == "get" && (check.resource == "pods" || check.path == "/x")
            }),
            request_resource: vec![("resource", "pods".to_owned())],
        }
    }

    fn evaluation() -> Evaluation {
        let object = json!({"spec": {"replicas": 3, "name": "a"}});
        let mut evaluation = Evaluation::new(&inputs(object), true);
        evaluation.declare("double", "object.spec.replicas * 2");
        evaluation.declare("more", "variables.double + 1");
        evaluation.declare("wrong", "object.spec.absent");
        evaluation
    }

    #[test]
    fn expressions_read_objects_and_declared_variables() {
        for (text, expected) in [
            ("object.spec.replicas == 3 && oldObject == null", Outcome::Bool(true)),
            ("variables.more == 7", Outcome::Bool(true)),
            ("'more than ' + string(variables.double)", Outcome::Text("more than 6".into())),
            ("object.spec.replicas", Outcome::Other),
            ("has(object.spec.absent) && variables.wrong", Outcome::Bool(false)),
            (
                "authorizer.group('').resource('pods').namespace('x').check('get').allowed()",
                Outcome::Bool(true),
            ),
            ("authorizer.group('').resource('pods').check('list').allowed()", Outcome::Bool(false)),
            (
                "authorizer.group('').resource('pods').fieldSelector('spec.nodeName=a').labelSelector('a=b').check('get').allowed()",
                Outcome::Bool(true),
            ),
            ("authorizer.requestResource.check('get').allowed()", Outcome::Bool(true)),
            ("authorizer.path('/x').check('get').reason()", Outcome::Text(String::new())),
        ] {
            assert_eq!(evaluation().evaluate(text), Ok(expected), "{text}");
        }
    }

    #[test]
    fn errors_name_the_expression_and_the_variable() {
        for (text, expected) in [
            ("object.spec.absent > 1", "no such key: absent"),
            ("variables.wrong > 1", "composited variable \"wrong\" fails to evaluate: no such key: absent"),
        ] {
            let error = evaluation().evaluate(text).unwrap_err();
            assert_eq!(error, format!("expression '{text}' resulted in error: {expected}"));
        }
    }

    #[test]
    fn costs_are_limited_for_all_expressions() {
        let numbers: Vec<u64> = (0..300).collect();
        let mut evaluation = Evaluation::new(&inputs(json!(numbers)), true);
        assert!(evaluation.evaluate("object.all(x, object.all(y, x + y >= 0))").is_err());
        assert!(evaluation.is_exhausted());
    }
}
