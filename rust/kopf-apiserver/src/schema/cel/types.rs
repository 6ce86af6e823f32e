//! Types of expressions that are known without values, with the rules of kube-apiserver for assigning them.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use super::{Schema, Type};

/// Type of an expression.
#[derive(Clone, Debug)]
pub(crate) enum StaticType<'s> {
    /// After an error, which is reported once.
    Error,
    Dyn,
    Null,
    Bool,
    Int,
    UInt,
    Double,
    Text,
    Bytes,
    Duration,
    Timestamp,
    Type(Box<Self>),
    List(Box<Self>),
    Map(Box<(Self, Self)>),
    /// Types such as `net.IP` and `optional_type`, with parameters.
    Opaque(&'static str, Vec<Self>),
    /// Objects without fields, such as quantities.
    Named(&'static str),
    /// An object with the properties of a schema; the root of a resource has metadata as well.
    Object {
        schema: &'s Schema,
        is_root: bool,
    },
    /// An object with these fields.
    Fields(Arc<Vec<(String, Self)>>),
    /// A parameter, or a variable for a type.
    Param(usize),
}

impl<'s> StaticType<'s> {
    pub(super) fn list(items: Self) -> Self {
        Self::List(Box::new(items))
    }

    pub(super) fn map(keys: Self, values: Self) -> Self {
        Self::Map(Box::new((keys, values)))
    }

    pub(crate) fn optional(self) -> Self {
        Self::Opaque("optional_type", vec![self])
    }

    /// The type of values of a schema; `None` if expressions cannot read them.
    pub(crate) fn of_schema(schema: &'s Schema, is_root: bool) -> Option<Self> {
        let format = schema.checks.as_ref().map_or("", |checks| checks.format.as_str());
        Some(match schema.kind {
            Type::IntOrString => Self::Dyn,
            Type::Array => Self::list(Self::of_schema(schema.items.as_deref()?, false)?),
            Type::Object => match schema.additional.as_deref() {
                Some(values) if values.kind != Type::Any => {
                    Self::map(Self::Text, Self::of_schema(values, false)?)
                }
                Some(values) if !values.keeps_unknown() => return None,
                _ => Self::Object { schema, is_root },
            },
            Type::String => match format {
                "byte" => Self::Bytes,
                "duration" => Self::Duration,
                "date" | "date-time" => Self::Timestamp,
                _ => Self::Text,
            },
            Type::Boolean => Self::Bool,
            Type::Integer => Self::Int,
            Type::Number => Self::Double,
            _ if is_root => Self::Object { schema, is_root },
            _ => return None,
        })
    }

    /// Its name, as a type that an expression must have or has.
    pub(crate) fn declared_name(&self) -> String {
        match self {
            Self::Null => "null_type".to_owned(),
            Self::Duration => "google.protobuf.Duration".to_owned(),
            Self::Timestamp => "google.protobuf.Timestamp".to_owned(),
            other => other.to_string(),
        }
    }

    /// The type in an optional type, and whether it was one.
    pub(super) fn unwrapped(&self) -> (Self, bool) {
        match self {
            Self::Opaque("optional_type", inner) => (inner.first().cloned().unwrap_or(Self::Dyn), true),
            other => (other.clone(), false),
        }
    }

    pub(super) fn is_dynamic(&self) -> bool {
        matches!(self, Self::Dyn | Self::Error)
    }

    fn params(&self) -> Vec<&Self> {
        match self {
            Self::Type(inner) | Self::List(inner) => vec![inner],
            Self::Map(pair) => vec![&pair.0, &pair.1],
            Self::Opaque(_, inner) => inner.iter().collect(),
            _ => Vec::new(),
        }
    }

    fn name(&self) -> &'static str {
        match self {
            Self::Error => "!error!",
            Self::Dyn => "dyn",
            Self::Null => "null",
            Self::Bool => "bool",
            Self::Int => "int",
            Self::UInt => "uint",
            Self::Double => "double",
            Self::Text => "string",
            Self::Bytes => "bytes",
            Self::Duration => "duration",
            Self::Timestamp => "timestamp",
            Self::Type(_) => "type",
            Self::List(_) => "list",
            Self::Map(_) => "map",
            Self::Opaque(name, _) | Self::Named(name) => name,
            Self::Object { .. } | Self::Fields(_) => "object",
            Self::Param(_) => "_var",
        }
    }

    /// Whether both are the same type.
    pub(super) fn is_exactly(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Param(a), Self::Param(b)) => a == b,
            (Self::Object { schema: a, .. }, Self::Object { schema: b, .. }) => std::ptr::eq(*a, *b),
            (Self::Fields(a), Self::Fields(b)) => Arc::ptr_eq(a, b),
            (Self::Object { .. } | Self::Fields(_), _) | (_, Self::Object { .. } | Self::Fields(_)) => false,
            _ => {
                let (a, b) = (self.params(), other.params());
                self.name() == other.name()
                    && a.len() == b.len()
                    && a.iter().zip(b).all(|(a, b)| a.is_exactly(b))
            }
        }
    }

    fn is_nullable(&self) -> bool {
        matches!(
            self,
            Self::Null
                | Self::Opaque(..)
                | Self::Named(_)
                | Self::Object { .. }
                | Self::Fields(_)
                | Self::Duration
                | Self::Timestamp
        )
    }

    /// Whether it is the same type, or has dynamic parts where the other one does not.
    fn is_as_general_as(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Dyn | Self::Param(_), _) | (Self::Type(_), Self::Type(_)) => true,
            (_, Self::Dyn | Self::Param(_)) => false,
            (Self::Opaque(..) | Self::List(_) | Self::Map(_), _) => {
                let (a, b) = (self.params(), other.params());
                self.name() == other.name()
                    && a.len() == b.len()
                    && a.iter().zip(b).all(|(a, b)| a.is_as_general_as(b))
            }
            _ => self.is_exactly(other),
        }
    }

    pub(super) fn most_general(self, other: Self) -> Self {
        if self.is_as_general_as(&other) { self } else { other }
    }
}

impl fmt::Display for StaticType<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.name())?;
        for (i, param) in self.params().into_iter().enumerate() {
            write!(out, "{}{param}", if i == 0 { "(" } else { ", " })?;
        }
        out.write_str(if self.params().is_empty() { "" } else { ")" })
    }
}

/// The types that variables for types stand for.
#[derive(Debug, Default)]
pub(super) struct Bindings<'s> {
    bound: HashMap<usize, StaticType<'s>>,
    /// The variables that the current assignment has bound, with their types before it: it may turn out to be impossible.
    former: Vec<(usize, Option<StaticType<'s>>)>,
}

impl<'s> Bindings<'s> {
    /// Whether values of one type can be assigned to the other, which can bind variables of both.
    pub(super) fn assign(&mut self, from: &StaticType<'s>, to: &StaticType<'s>) -> bool {
        self.assign_all(std::slice::from_ref(from), std::slice::from_ref(to))
    }

    pub(super) fn assign_all(&mut self, from: &[StaticType<'s>], to: &[StaticType<'s>]) -> bool {
        let is_assignable =
            from.len() == to.len() && from.iter().zip(to).all(|(from, to)| self.is_assignable(from, to));
        while let Some((variable, former)) = self.former.pop() {
            match former {
                _ if is_assignable => {}
                Some(former) => drop(self.bound.insert(variable, former)),
                None => drop(self.bound.remove(&variable)),
            }
        }
        is_assignable
    }

    fn insert(&mut self, variable: usize, to: StaticType<'s>) {
        let former = self.bound.insert(variable, to);
        self.former.push((variable, former));
    }

    fn is_assignable(&mut self, from: &StaticType<'s>, to: &StaticType<'s>) -> bool {
        if let StaticType::Param(variable) = to {
            match self.bind(*variable, from) {
                (true, _) => return true,
                (false, true) => return false,
                (false, false) => {}
            }
        }
        if let StaticType::Param(variable) = from {
            return self.bind(*variable, to).0;
        }
        match (from, to) {
            _ if from.is_dynamic() || to.is_dynamic() => true,
            (StaticType::Null, other) | (other, StaticType::Null) => other.is_nullable(),
            (StaticType::Type(_), StaticType::Type(_)) => true,
            (StaticType::Opaque(..) | StaticType::List(_) | StaticType::Map(_), _) => {
                let (a, b) = (from.params(), to.params());
                from.name() == to.name()
                    && a.len() == b.len()
                    && a.into_iter().zip(b).all(|(a, b)| self.is_assignable(a, b))
            }
            _ => from.is_exactly(to),
        }
    }

    /// Binds a variable to a type. Returns whether that is possible, and whether it was bound already.
    fn bind(&mut self, variable: usize, to: &StaticType<'s>) -> (bool, bool) {
        let param = StaticType::Param(variable);
        if param.is_exactly(to) {
            return (true, true);
        }
        if let Some(bound) = self.bound.get(&variable).cloned() {
            if bound.is_exactly(to) {
                return (true, true);
            }
            if !self.is_assignable(to, &bound) {
                return (false, true);
            }
            let general = to.clone().most_general(bound);
            if !self.refers(&general, variable) {
                self.insert(variable, general);
            }
            return (true, true);
        }
        let is_possible = !self.refers(to, variable);
        if is_possible {
            self.insert(variable, to.clone());
        }
        (is_possible, false)
    }

    fn refers(&self, within: &StaticType<'s>, variable: usize) -> bool {
        match within {
            StaticType::Param(other) if *other == variable => true,
            StaticType::Param(other) => {
                self.bound.get(other).is_some_and(|bound| self.refers(bound, variable))
            }
            other => other.params().into_iter().any(|param| self.refers(param, variable)),
        }
    }

    /// The type with what its variables are bound to. With `is_final`, unbound ones are dynamic.
    pub(super) fn substituted(&self, kind: &StaticType<'s>, is_final: bool) -> StaticType<'s> {
        let inner = |it: &StaticType<'s>| self.substituted(it, is_final);
        match kind {
            StaticType::Param(variable) => match self.bound.get(variable) {
                Some(bound) => inner(bound),
                None if is_final => StaticType::Dyn,
                None => kind.clone(),
            },
            StaticType::Type(it) => StaticType::Type(Box::new(inner(it))),
            StaticType::List(items) => StaticType::list(inner(items)),
            StaticType::Map(pair) => StaticType::map(inner(&pair.0), inner(&pair.1)),
            StaticType::Opaque(name, params) => StaticType::Opaque(name, params.iter().map(inner).collect()),
            other => other.clone(),
        }
    }

    pub(super) fn with(variables: impl Iterator<Item = (usize, StaticType<'s>)>) -> Self {
        Self { bound: variables.collect(), former: Vec::new() }
    }
}
