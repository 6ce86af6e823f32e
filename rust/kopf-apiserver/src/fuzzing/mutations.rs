//! Bounded fuzzing: mutations of the conformance requests and other valid inputs, for half a second per property.
//!
//! `KOPF_FUZZ_SECONDS` sets the duration, `KOPF_FUZZ_SEED` repeats a run, `KOPF_FUZZ_CORPUS=fuzz/corpus` writes the
//! seeds for the coverage-guided targets.

#![allow(clippy::disallowed_methods, reason = "the time of a run is real time")]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use super::*;

/// Maximum duration of one input, also on a busy machine.
const TIME_LIMIT: Duration = Duration::from_secs(5);

/// Random number generator (xorshift).
struct Rng(u64);

impl Rng {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 >> 8).unwrap_or_default() % limit.max(1)
    }
    fn of<'t, T>(&mut self, list: &'t [T]) -> &'t T {
        list.get(self.below(list.len())).expect("a choice")
    }
}

const TOKENS: [&[u8]; 40] = [
    b"{",
    b"}",
    b"[",
    b"]",
    b"\"",
    b"null",
    b"true",
    b"-1",
    b"0",
    b"1e999",
    b"9223372036854775808",
    b"1.5",
    b"\\u0000",
    b"\\ud800",
    "\u{e9}\u{1f600}".as_bytes(),
    b"/",
    b"//",
    b"..",
    b"%2f",
    b"%",
    b"?",
    b"&",
    b"=",
    b",",
    b"!",
    b"(",
    b" in (",
    b"status",
    b"scale",
    b"metadata",
    b"managedFields",
    b"default",
    b"$patch",
    b"$retainKeys",
    b"$setElementOrder/containers",
    b"{\"$patch\":\"delete\"}",
    b"~1",
    b"-",
    b"k8s\0",
    b"application/apply-patch+yaml",
];

/// Mutates an input, or splices two.
fn mutate(rng: &mut Rng, seeds: &[Vec<u8>]) -> Vec<u8> {
    let mut out = rng.of(seeds).clone();
    for _ in 0..=rng.below(4) {
        let at = rng.below(out.len() + 1);
        let length = rng.below(1 + (out.len() - at).min(24));
        match rng.below(7) {
            0 => drop(out.drain(at..at + length)),
            1 => drop(out.splice(at..at, rng.of(&TOKENS).iter().copied())),
            2 => drop(out.splice(at..at + length, rng.of(&TOKENS).iter().copied())),
            3 => {
                let other = rng.of(seeds).clone();
                let from = rng.below(other.len() + 1);
                let count = rng.below(1 + (other.len() - from).min(200));
                let part = other.into_iter().skip(from).take(count);
                drop(out.splice(at..at, part));
            }
            4 => {
                let part: Vec<u8> = out.iter().skip(at).take(length).copied().collect();
                drop(out.splice(at..at, part));
            }
            5 => {
                if let Some(byte) = out.get_mut(at) {
                    *byte ^= 1 << rng.below(8);
                }
            }
            _ => swap_values(rng, &mut out, seeds),
        }
    }
    out
}

/// Replaces a JSON value of the input with another one, so that it stays JSON.
fn swap_values(rng: &mut Rng, out: &mut Vec<u8>, seeds: &[Vec<u8>]) {
    let Some((at, length)) = some_value(rng, out) else { return };
    let other = rng.of(seeds).clone();
    if let Some((from, count)) = some_value(rng, &other) {
        drop(out.splice(at..at + length, other.into_iter().skip(from).take(count)));
    }
}

/// Position and length of a JSON value.
fn some_value(rng: &mut Rng, text: &[u8]) -> Option<(usize, usize)> {
    let starts: Vec<usize> = text
        .iter()
        .enumerate()
        .filter(|(_, b)| matches!(b, b':' | b',' | b'[' | b'\n'))
        .map(|(i, _)| i + 1)
        .collect();
    for _ in 0..8 {
        let start = *starts.get(rng.below(starts.len()))?;
        let rest = text.get(start..)?;
        let mut values = serde_json::Deserializer::from_slice(rest).into_iter::<serde::de::IgnoredAny>();
        if values.next().is_some_and(|v| v.is_ok()) {
            return Some((start, values.byte_offset()));
        }
    }
    None
}

fn run(name: &str, seeds: &[Vec<u8>], property: fn(&[u8])) {
    let setting = |key: &str| std::env::var(key).ok().and_then(|v| v.parse::<u64>().ok());
    let time = setting("KOPF_FUZZ_SECONDS").map_or(Duration::from_millis(500), Duration::from_secs);
    let seed = setting("KOPF_FUZZ_SEED").unwrap_or_else(crate::base::random::random_bits);
    let mut rng = Rng(seed | 1);
    if let Ok(folder) = std::env::var("KOPF_FUZZ_CORPUS") {
        write_corpus(&std::path::Path::new(&folder).join(name), seeds);
    }
    for input in seeds {
        property(input);
    }
    let started = Instant::now();
    let mut tries = 0_u64;
    while started.elapsed() < time {
        let input = mutate(&mut rng, seeds);
        let before = Instant::now();
        let result = catch_unwind(AssertUnwindSafe(|| property(&input)));
        let shown = || input.escape_ascii().to_string();
        assert!(result.is_ok(), "{name}: broken after {tries} tries of seed {seed} by\n{}", shown());
        assert!(before.elapsed() < TIME_LIMIT, "{name}: {:?} were taken by\n{}", before.elapsed(), shown());
        tries += 1;
    }
    assert!(tries > 5, "only {tries} tries of {name}");
    if time > Duration::from_secs(1) {
        let _ =
            std::io::Write::write_all(&mut std::io::stderr(), format!("{name}: {tries} tries\n").as_bytes());
    }
}

/// Writes the seeds for the coverage-guided targets.
fn write_corpus(folder: &std::path::Path, seeds: &[Vec<u8>]) {
    std::fs::create_dir_all(folder).expect("a folder");
    for (i, seed) in seeds.iter().enumerate() {
        std::fs::write(folder.join(format!("seed-{i}")), seed).expect("a file");
    }
}

/// Requests of the conformance tests.
fn recorded_requests() -> Vec<Value> {
    let text = include_str!("../../../../tests/conformance/requests.jsonl");
    text.lines().map(|line| serde_json::from_str(line).expect("a line of JSON")).collect()
}

#[test]
fn any_request_gets_a_response() {
    let seeds: Vec<Vec<u8>> = recorded_requests()
        .iter()
        .map(|r| {
            let text = |key: &str| r[key].as_str().unwrap_or_default();
            let mut out = format!("{} {}", text("method"), text("path"));
            if !text("type").is_empty() {
                out = format!("{out}\ncontent-type: {}", text("type"));
            }
            for (key, value) in r["headers"].as_object().into_iter().flatten() {
                out = format!("{out}\n{key}: {}", value.as_str().unwrap_or_default());
            }
            format!("{out}\n\n{}", text("body")).into_bytes()
        })
        .collect();
    run("requests", &seeds, requests);
}

/// Objects and patches of the conformance requests.
fn bodies() -> Vec<Value> {
    let all = recorded_requests().into_iter().filter_map(|r| serde_json::from_str(r["body"].as_str()?).ok());
    all.filter(|v: &Value| v.is_object() || v.is_array()).collect()
}

#[test]
fn patches_keep_their_properties() {
    let bodies = bodies();
    let mut rng = Rng(7);
    let names = ["core.v1.Pod", "apps.v1.Deployment", "core.v1.Service", "meta.v1.ObjectMeta", "nothing"];
    let seeds: Vec<Vec<u8>> = (0..2_000)
        .map(|_| {
            let name = rng.of(&names);
            format!("{name}\n{}\n{}", rng.of(&bodies), rng.of(&bodies)).into_bytes()
        })
        .collect();
    run("patches", &seeds, patches);
}

#[test]
fn schemas_keep_their_properties() {
    let mut declared =
        vec![test_crd().pointer("/spec/versions/0/schema/openAPIV3Schema").cloned().expect("it")];
    let bodies = bodies();
    for body in &bodies {
        for version in body.pointer("/spec/versions").and_then(Value::as_array).into_iter().flatten() {
            declared.extend(version.pointer("/schema/openAPIV3Schema").cloned());
        }
    }
    let mut rng = Rng(7);
    let seeds: Vec<Vec<u8>> =
        (0..2_000).map(|_| format!("{}\n{}", rng.of(&declared), rng.of(&bodies)).into_bytes()).collect();
    run("schemas", &seeds, schemas);
}

/// CRDs of the conformance requests, and of the file of JSON lines that `KOPF_FUZZ_CRDS` names.
#[test]
fn any_crd_is_served_or_rejected() {
    let is_crd = |value: &Value| value["kind"] == "CustomResourceDefinition";
    let bodies = bodies();
    let mut crds: Vec<Value> = bodies.iter().filter(|body| is_crd(body)).cloned().collect();
    crds.push(test_crd());
    if let Ok(path) = std::env::var("KOPF_FUZZ_CRDS") {
        let text = std::fs::read_to_string(path).expect("a file");
        crds.extend(text.lines().map(|line| serde_json::from_str::<Value>(line).expect("a line of JSON")));
    }
    let objects: Vec<&Value> =
        bodies.iter().filter(|body| body["spec"].is_object() && !is_crd(body)).collect();
    let mut rng = Rng(7);
    // Each takes many requests.
    let seeds: Vec<Vec<u8>> = (0..40)
        .map(|i| {
            let (first, mut second) = (rng.of(&crds).clone(), rng.of(&crds).clone());
            if i % 2 == 0 {
                // Another CRD of the group with some of the names.
                second["spec"]["group"] = first["spec"]["group"].clone();
                let member = *rng.of(&["kind", "listKind", "singular", "plural", "shortNames"]);
                second["spec"]["names"][member] =
                    first["spec"]["names"][*rng.of(&["kind", "plural", member])].clone();
            }
            format!("{first}\n{second}\n{}", rng.of(&objects)).into_bytes()
        })
        .collect();
    run("crds", &seeds, super::crds);
}

#[test]
fn any_text_is_a_selector_or_is_rejected() {
    let mut seeds: Vec<Vec<u8>> = [
        "a=b",
        "a==b,c!=d",
        "a in (b,c),!d",
        "x.y/z notin (1)",
        "a>1,b<2",
        "metadata.name=x,metadata.namespace!=y",
        "spec.nodeName=",
        "shardRange(object.metadata.uid, '0x0', '0x8000000000000000')",
        "{.a[0].b}",
        ".a[?(@.b==1)]",
        "12Ki",
        "1e3",
        "-0.5m",
        "2024-01-01T00:00:00Z",
        "a: &x [1, 2]\nb: *x\n",
        "- 1\n- {a: b}\n",
        "{\"a\": 1}",
    ]
    .map(|t| t.as_bytes().to_vec())
    .into();
    seeds
        .push(b"k8s\0\x0a\x0f\x0a\x02v1\x12\x09ConfigMap\x12\x0a\x0a\x03\x0a\x01m\x12\x03\x0a\x01a".to_vec());
    seeds.extend(recorded_requests().iter().filter_map(|r| Some(r["path"].as_str()?.as_bytes().to_vec())));
    run("selectors", &seeds, selectors);
}
