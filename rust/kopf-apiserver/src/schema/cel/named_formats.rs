//! The named formats of Kubernetes in CEL expressions. Their names stand for them.

use std::sync::Arc;

use base64::Engine;
use cel::extractors::This;
use cel::objects::OptionalValue;
use cel::{Context, ExecutionError};

use super::super::formats;
use crate::base::go_url;
use crate::base::name_rules::{
    label_1035_errors, label_errors, label_value_error, qualified_name_errors, subdomain_errors,
};

type Cel = cel::Value;
type Text = Arc<String>;

const NAMES: [&str; 13] = [
    "dns1123Label",
    "dns1123Subdomain",
    "dns1035Label",
    "qualifiedName",
    "dns1123LabelPrefix",
    "dns1123SubdomainPrefix",
    "dns1035LabelPrefix",
    "labelValue",
    "uri",
    "uuid",
    "byte",
    "date",
    "datetime",
];

/// Adds the functions.
pub(super) fn add_functions(context: &mut Context) {
    for name in NAMES {
        let _ = context.add_function(&format!("format.{name}"), move || -> Cel { name.into() });
    }
    let _ = context.add_function("format.named", |name: Text| -> Cel {
        optional(NAMES.contains(&name.as_str()).then(|| Cel::String(name)))
    });
    let _ = context.add_function(
        "validate",
        |This(name): This<Text>, text: Text| -> Result<Cel, ExecutionError> {
            if !NAMES.contains(&name.as_str()) {
                return Err(ExecutionError::function_error("validate", "no such overload"));
            }
            let errors = errors(&name, &text);
            Ok(optional((!errors.is_empty()).then(|| errors.into())))
        },
    );
}

fn optional(value: Option<Cel>) -> Cel {
    Cel::Opaque(Arc::new(value.map_or_else(OptionalValue::none, OptionalValue::of)))
}

fn errors(format: &str, text: &str) -> Vec<String> {
    let unless = |is_valid: bool, error: &str| if is_valid { Vec::new() } else { vec![error.to_owned()] };
    match format {
        "dns1123Label" => label_errors(text),
        "dns1123Subdomain" => subdomain_errors(text),
        "dns1035Label" => label_1035_errors(text),
        "qualifiedName" => qualified_name_errors(text),
        "dns1123LabelPrefix" => label_errors(&without_dash(text)),
        "dns1123SubdomainPrefix" => subdomain_errors(&without_dash(text)),
        "dns1035LabelPrefix" => label_1035_errors(&without_dash(text)),
        "labelValue" => label_value_error(text).into_iter().collect(),
        "uri" => go_url::check(text).err().into_iter().collect(),
        "uuid" => unless(formats::matches("uuid", text), "does not match the UUID format"),
        "byte" => {
            let is_valid = base64::engine::general_purpose::STANDARD.decode(text).is_ok();
            unless(is_valid, "invalid base64")
        }
        "date" => unless(formats::matches("date", text), "invalid date"),
        _ => unless(formats::matches("date-time", text), "invalid datetime"),
    }
}

/// A prefix may end with a dash.
fn without_dash(text: &str) -> String {
    match text.strip_suffix('-') {
        Some(rest) if !rest.is_empty() => {
            let kept: String = rest.chars().take(rest.chars().count() - 1).collect();
            format!("{kept}a")
        }
        _ => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::{ENV, libraries};
    use super::*;

    #[test]
    fn formats_validate_texts() {
        for text in [
            "!format.dns1123Label().validate('my-name').hasValue() && format.dns1123Label().validate('My').hasValue()",
            "format.named('uuid').value().validate('x').value() == ['does not match the UUID format']",
            "!format.dns1123LabelPrefix().validate('a-').hasValue() && format.dns1123Label().validate('a-').hasValue()",
            "!format.named('other').hasValue() && !format.byte().validate('YQ==').hasValue()",
            "!format.date().validate('2020-01-31').hasValue() && format.datetime().validate('2020').hasValue()",
            "'%s'.format(['a']) == 'a'",
        ] {
            let mut context = Context::with_env(ENV.clone());
            libraries::add_functions(&mut context);
            let result = ENV.compile(text).unwrap().execute(&context);
            assert_eq!(result.ok(), Some(Cel::Bool(true)), "{text}");
        }
    }
}
