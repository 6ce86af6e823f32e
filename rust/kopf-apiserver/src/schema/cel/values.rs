//! Functions of Kubernetes for quantities, versions, sets and lists in CEL expressions. Strings stand for versions, and for quantities: they
//! have the number of their nanos, which is no version.

use std::cmp::Ordering;
use std::sync::Arc;

use cel::extractors::This;
use cel::{Context, ExecutionError};

use super::super::formats;
use super::super::quantity::nanos;
use super::lists::add_list_function;
use super::texts;

type Cel = cel::Value;
type Text = Arc<String>;

/// Adds the functions.
pub(super) fn add_functions(context: &mut Context) {
    add_quantities(context);
    add_versions(context);
    add_lists(context);
}

fn add_quantities(context: &mut Context) {
    let _ = context.add_function("isQuantity", |text: Text| -> bool { nanos(&text).is_some() });
    let _ = context.add_function("quantity", |text: Text| -> Result<Cel, ExecutionError> {
        let error = || ExecutionError::function_error("quantity", formats::QUANTITY_ERROR);
        nanos(&text).map(quantity).ok_or_else(error)
    });
    let _ = context.add_function("compareTo", |This(a): This<Cel>, b: Cel| -> i64 {
        compare(&a, &b).map_or(0, |order| order as i64)
    });
    let _ = context.add_function("isGreaterThan", |This(a): This<Cel>, b: Cel| -> bool {
        compare(&a, &b) == Some(Ordering::Greater)
    });
    let _ = context.add_function("isLessThan", |This(a): This<Cel>, b: Cel| -> bool {
        compare(&a, &b) == Some(Ordering::Less)
    });
    let _ = context.add_function("isInteger", |This(value): This<Cel>| -> bool { whole(&value).is_some() });
    let _ = context.add_function("asInteger", |This(value): This<Cel>| -> Result<i64, ExecutionError> {
        let error = || ExecutionError::function_error("asInteger", "cannot convert value to integer");
        whole(&value).ok_or_else(error)
    });
    let _ = context.add_function("asApproximateFloat", |This(value): This<Cel>| -> f64 {
        #[expect(clippy::cast_precision_loss, reason = "an approximation")]
        amount(&value).map_or(0.0, |nanos| nanos as f64 / 1e9)
    });
    let _ = context.add_function("sign", |This(value): This<Cel>| -> i64 {
        amount(&value).map_or(0, |nanos| nanos.cmp(&0) as i64)
    });
    for (name, calculate) in [("add", i128::saturating_add as Calculation), ("sub", i128::saturating_sub)] {
        let _ =
            context.add_function(name, move |This(a): This<Cel>, b: Cel| -> Result<Cel, ExecutionError> {
                let both = amount(&a).zip(amount(&b));
                let error = || ExecutionError::function_error(name, "no such overload");
                both.map(|(a, b)| quantity(calculate(a, b))).ok_or_else(error)
            });
    }
}

/// The value of a quantity. Equal ones have equal texts.
fn quantity(nanos: i128) -> Cel {
    nanos.to_string().into()
}

/// The nanos of a quantity or an integer.
fn amount(value: &Cel) -> Option<i128> {
    match value {
        Cel::Int(number) => Some(i128::from(*number) * NANOS),
        Cel::String(nanos) => nanos.parse().ok(),
        _ => None,
    }
}

/// A function of two amounts.
type Calculation = fn(i128, i128) -> i128;

const NANOS: i128 = 1_000_000_000;

/// An integer of 64 bits.
fn whole(value: &Cel) -> Option<i64> {
    let nanos = amount(value).filter(|nanos| nanos % NANOS == 0)?;
    i64::try_from(nanos / NANOS).ok()
}

/// Compares quantities or versions.
fn compare(a: &Cel, b: &Cel) -> Option<Ordering> {
    match (amount(a).zip(amount(b)), a, b) {
        (Some((a, b)), ..) => Some(a.cmp(&b)),
        (None, Cel::String(a), Cel::String(b)) => Some(version(a)?.cmp(&version(b)?)),
        _ => None,
    }
}

/// Numbers of a semantic version, and the identifiers of its pre-release, in their order.
type Version = (u64, u64, u64, bool, Vec<(bool, u64, String)>);

fn version(text: &str) -> Option<Version> {
    let text = text.split_once('+').map_or(text, |(text, _)| text);
    let (numbers, pre_release) = text.split_once('-').map_or((text, None), |(n, p)| (n, Some(p)));
    let number = |text: &str| {
        let is_number = text.bytes().all(|b| b.is_ascii_digit()) && (text == "0" || !text.starts_with('0'));
        if is_number { text.parse::<u64>().ok() } else { None }
    };
    let parts: Vec<&str> = numbers.split('.').collect();
    let [major, minor, patch] = *parts else { return None };
    let identifiers = pre_release.into_iter().flat_map(|text| text.split('.'));
    // Numbers are lower than names.
    let identifier = |text: &str| match number(text) {
        Some(number) => (false, number, String::new()),
        None => (true, 0, text.to_owned()),
    };
    let identifiers = identifiers.map(identifier).collect();
    Some((number(major)?, number(minor)?, number(patch)?, pre_release.is_none(), identifiers))
}

fn add_versions(context: &mut Context) {
    let parsed = |values: &[Cel]| match values {
        [Cel::String(text)] | [Cel::String(text), Cel::Bool(false)] => {
            version(text).map(|_| text.to_string())
        }
        [Cel::String(text), Cel::Bool(true)] => normalized(text).filter(|text| version(text).is_some()),
        _ => None,
    };
    texts::add(context, "isSemver", move |values| Ok(parsed(values).is_some().into()));
    texts::add(context, "semver", move |values| {
        let error = ExecutionError::function_error("semver", "No Major.Minor.Patch elements found");
        parsed(values).map(Cel::from).ok_or(error)
    });
    for (name, index) in [("major", 0), ("minor", 1), ("patch", 2)] {
        let _ = context.add_function(name, move |This(text): This<Text>| -> i64 {
            let found = version(&text).map(|(major, minor, patch, ..)| [major, minor, patch]);
            let number = found.and_then(|numbers| numbers.get(index).copied()).unwrap_or_default();
            i64::try_from(number).unwrap_or(i64::MAX)
        });
    }
}

/// A version without a `v`, with all three numbers and without leading zeros.
fn normalized(text: &str) -> Option<String> {
    let text = text.strip_prefix('v').unwrap_or(text);
    let number = |part: &str| {
        let trimmed = part.trim_start_matches('0');
        let is_number = trimmed.starts_with(|c: char| c.is_ascii_digit());
        if part.len() > 1 && !is_number {
            format!("0{trimmed}")
        } else if part.len() > 1 {
            trimmed.to_owned()
        } else {
            part.to_owned()
        }
    };
    let mut parts: Vec<String> = text.splitn(3, '.').map(number).collect();
    if parts.len() < 3 && parts.last().is_some_and(|last| last.contains(['+', '-'])) {
        return None;
    }
    parts.resize(3, "0".to_owned());
    Some(parts.join("."))
}

fn add_lists(context: &mut Context) {
    for (name, order) in [("min", Ordering::Less), ("max", Ordering::Greater)] {
        add_list_function(context, name, move |lists| {
            let items = lists.first().into_iter().copied().flatten();
            let extreme =
                items.reduce(|best, it| if it.partial_cmp(best) == Some(order) { it } else { best });
            let error = || ExecutionError::function_error(name, format!("{name} called on empty list"));
            extreme.cloned().ok_or_else(error)
        });
    }
    add_list_function(context, "isSorted", |lists| Ok(lists.iter().all(|list| list.is_sorted()).into()));
    add_list_function(context, "sum", |lists| sum(lists.first().copied().unwrap_or_default()));
    add_list_function(context, "sets.contains", |lists| Ok(matches!(lists, [a, b] if contains(a, b)).into()));
    add_list_function(context, "sets.equivalent", |lists| {
        Ok(matches!(lists, [a, b] if contains(a, b) && contains(b, a)).into())
    });
    add_list_function(context, "sets.intersects", |lists| {
        Ok(matches!(lists, [a, b] if b.iter().any(|item| a.contains(item))).into())
    });
}

fn contains(all: &[Cel], items: &[Cel]) -> bool {
    items.iter().all(|item| all.contains(item))
}

fn float(value: &Cel) -> Option<f64> {
    match value {
        #[expect(clippy::cast_precision_loss, reason = "of a list of mixed numbers")]
        Cel::Int(number) => Some(*number as f64),
        Cel::Float(number) => Some(*number),
        _ => None,
    }
}

fn sum(list: &[Cel]) -> Result<Cel, ExecutionError> {
    let integers: Option<Vec<i64>> =
        list.iter().map(|item| if let Cel::Int(number) = item { Some(*number) } else { None }).collect();
    let Some(integers) = integers else {
        if let [Cel::Duration(first), rest @ ..] = list {
            let add = |sum: &Cel, item: &Cel| match (sum, item) {
                (Cel::Duration(sum), Cel::Duration(item)) => sum.checked_add(item).map(Cel::Duration),
                _ => None,
            };
            let sum = rest.iter().try_fold(Cel::Duration(*first), |sum, item| add(&sum, item));
            return sum.ok_or_else(|| ExecutionError::function_error("sum", "duration overflow"));
        }
        return Ok(Cel::Float(list.iter().filter_map(float).sum()));
    };
    let sum = integers.into_iter().try_fold(0, i64::checked_add);
    sum.map(Cel::Int).ok_or_else(|| ExecutionError::function_error("sum", "integer overflow"))
}

#[cfg(test)]
mod tests {
    use super::super::{ENV, libraries};
    use super::*;

    fn evaluated(text: &str) -> Option<Cel> {
        let mut context = Context::with_env(ENV.clone());
        libraries::add_functions(&mut context);
        ENV.compile(text).ok()?.execute(&context).ok()
    }

    #[test]
    fn quantities_versions_and_sets_have_functions() {
        for text in [
            "quantity('1Gi').isGreaterThan(quantity('1M')) && quantity('1').compareTo(quantity('1000m')) == 0",
            "quantity('1.5k').asInteger() == 1500 && !quantity('500m').isInteger() && quantity('-1').sign() == -1",
            "quantity('2').add(quantity('500m')).sub(quantity('1')).asApproximateFloat() == 1.5",
            "quantity('100m').add(quantity('200m')) == quantity('300m') && quantity('9m') == quantity('0.009')",
            "quantity('9007199254740993').asInteger() == 9007199254740993 && quantity('1.5Gi') == quantity('1536Mi')",
            "!quantity('9223372036854775807').add(1).isInteger() && quantity('3').sub(1).asInteger() == 2",
            "!quantity('100m').add(quantity('200m')).isGreaterThan(quantity('0.3')) && quantity('50k').sub(20000) == quantity('30k')",
            "quantity('-100m').sign() == -1 && quantity('0').sign() == 0 && quantity('0.1n') == quantity('1n')",
            "quantity('1e3') == quantity('1k') && quantity('.5') == quantity('500m') && !isQuantity('1.2.3') && !isQuantity('1x')",
            "[quantity('1')] == [quantity('1000m')] && quantity('1').compareTo(quantity('2')) == -1",
            "semver('1.2.3').isLessThan(semver('1.10.0')) && semver('1.0.0-rc.1').isLessThan(semver('1.0.0'))",
            "isSemver('1.2.3') && !isSemver('1.2') && !isSemver('01.2.3') && semver('1.2.3').minor() == 2",
            "sets.contains([1, 2], [1]) && sets.equivalent([1, 2, 1], [2, 1]) && !sets.intersects([1], [2])",
            "[2, 9, 3].max() == 9 && ['b', 'a'].min() == 'a'",
        ] {
            assert_eq!(evaluated(text), Some(Cel::Bool(true)), "{text}");
        }
    }

    #[test]
    fn sums_of_integers_do_not_overflow() {
        assert_eq!(evaluated("[1, 2, 3].sum()"), Some(Cel::Int(6)));
        assert_eq!(evaluated("[1.5, 2.5].sum()"), Some(Cel::Float(4.0)));
        assert_eq!(evaluated("[9223372036854775807, 1].sum()"), None);
    }
}
