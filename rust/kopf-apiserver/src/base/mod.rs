//! Foundations of all layers: options, names, JSON, YAML, regular expressions, URLs, clock, randomness, tasks.

pub(crate) mod background;
pub(crate) mod clock;
pub(crate) mod connections;
pub(crate) mod field_path;
pub(crate) mod go_regex;
pub(crate) mod go_url;
pub(crate) mod json;
pub(crate) mod json_path;
pub(crate) mod name_rules;
pub(crate) mod names;
pub(crate) mod options;
pub(crate) mod random;
pub(crate) mod tasks;
pub(crate) mod user;
pub(crate) mod yaml;
