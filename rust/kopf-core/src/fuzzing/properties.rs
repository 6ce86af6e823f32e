//! The properties, checked with mutations of valid inputs: a few hundred per property in every test run. `PROPTEST_CASES` sets another
//! number; `KOPF_FUZZ_CORPUS=fuzz/corpus` writes the valid inputs as seeds for the coverage-guided targets.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select};

use super::*;

const PIECES: [&str; 36] = [
    "{",
    "}",
    "[",
    "]",
    "\"",
    "null",
    "true",
    "-1",
    "0",
    "1e999",
    "9223372036854775808",
    "-0.0",
    "1.5",
    "\\u0000",
    "\\ud800",
    "\u{e9}\u{1f600}",
    "\\\"",
    "\n",
    ",",
    ":",
    "!",
    "*",
    "?",
    "[a-",
    "metadata",
    "annotations",
    "finalizers",
    "data",
    "\"a\":{",
    "2020-01-01T00:00:00+99:99",
    "\u{feff}",
    " ",
    "\t",
    "1E400",
    "0x1",
    "NaN",
];

/// An input, escaped in failure messages.
#[derive(Clone)]
struct Input(Vec<u8>);

impl std::fmt::Debug for Input {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.0.escape_ascii())
    }
}

/// A valid input with a few changes: removals, insertions, replacements, repetitions, flipped bits.
fn mutated(seeds: &'static [&'static str]) -> impl Strategy<Value = Input> {
    let change = (any::<Index>(), 0..32_usize, 0..5_u8, select(&PIECES[..]), any::<u8>());
    (select(seeds), vec(change, 0..5)).prop_map(|(seed, changes)| {
        let mut out = seed.as_bytes().to_vec();
        for (at, length, what, piece, bit) in changes {
            let at = at.index(out.len() + 1);
            let end = (at + length).min(out.len());
            match what {
                0 => drop(out.drain(at..end)),
                1 => drop(out.splice(at..at, piece.bytes())),
                2 => drop(out.splice(at..end, piece.bytes())),
                3 => {
                    let part = out.get(at..end).unwrap_or_default().to_vec();
                    drop(out.splice(at..at, part));
                }
                _ => {
                    if let Some(byte) = out.get_mut(at) {
                        *byte ^= 1 << (bit % 8);
                    }
                }
            }
        }
        Input(out)
    })
}

#[expect(clippy::disallowed_methods, reason = "the inputs of the fuzz targets are files")]
fn run(name: &str, seeds: &'static [&'static str], property: fn(&[u8])) {
    if let Ok(folder) = std::env::var("KOPF_FUZZ_CORPUS") {
        let folder = std::path::Path::new(&folder).join(name);
        std::fs::create_dir_all(&folder).expect("a folder");
        for (number, seed) in seeds.iter().enumerate() {
            std::fs::write(folder.join(format!("seed-{number}")), seed).expect("a file");
        }
    }
    for seed in seeds {
        property(seed.as_bytes());
    }
    let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig {
        failure_persistence: None,
        cases: ProptestConfig::default().cases.max(512),
        ..ProptestConfig::default()
    });
    let outcome = runner.run(&mutated(seeds), |input| {
        property(&input.0);
        Ok(())
    });
    if let Err(error) = outcome {
        panic!("{name}: {error}");
    }
}

const OBJECTS: [&str; 6] = [
    r#"{"apiVersion":"v1","kind":"Secret","metadata":{"name":"x","namespace":"y","uid":"u","resourceVersion":"1","labels":{"a":"b"},"annotations":{"kopf.zalando.org/last-handled-configuration":"{\"data\":{\"k\":\"planted\"}}\n"},"finalizers":["a/b"],"managedFields":[{"manager":"m","time":"2020-01-01T00:00:00Z","fieldsV1":{"f:x":{}}}],"ownerReferences":[{"kind":"Pod"}]},"data":{"k":"planted"},"stringData":{"k":"planted"}}"#,
    r#"{"kind":"X","apiVersion":"g/v1","metadata":{"name":"\u00e9\"\\","deletionTimestamp":"2020-01-01T00:00:00Z"},"spec":{"a":[1,2.5,-0.0,1e3,{"b":null}]},"status":{"x":{"y":true}}}"#,
    r#"{"type":"MODIFIED","object":{"kind":"X","apiVersion":"v1","metadata":{"name":"x","resourceVersion":"5"},"spec":{}}}"#,
    r#"{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"5","annotations":{"k8s.io/initial-events-end":"true"}}}}"#,
    r#"{"type":"ERROR","object":{"kind":"Status","code":410,"reason":"Expired"}}"#,
    r#"{"kind":"XList","apiVersion":"g/v1","metadata":{"resourceVersion":"9","continue":"t"},"items":[{"metadata":{"name":"a"},"spec":{"x":1}},{"metadata":{"name":"b"}}]}"#,
];

const PAIRS: [&str; 4] = [
    "{\"spec\":{\"a\":1,\"b\":[1,2]},\"metadata\":{\"labels\":{\"x\":\"y\"}}}\n{\"spec\":{\"a\":1.0,\"c\":{}},\"status\":{\"x\":1}}",
    "{\"a/b~c\":{\"\":0}}\n{\"a/b~c\":{\"\":null},\"d\":\"\u{e9}\u{1f600}\"}",
    "[1,2,3]\n{\"a\":[1,2]}",
    "{\"status\":null}\n{\"status\":null,\"spec\":{\"a\":{\"b\":{\"c\":null}}}}",
];

const STATES: [&str; 7] = [
    "{\"spec\":{\"a\":1}}\n\n{\"started\":\"2020-01-01T00:00:00.000000+00:00\",\"stopped\":null,\"delayed\":\"2020-01-01T00:00:01\",\"purpose\":\"create\",\"retries\":1,\"success\":false,\"failure\":false,\"message\":\"m\",\"subrefs\":[\"a\"]}",
    "{\"spec\":{\"a\":1}}\n{\"started\":\"2020-01-01T00:00:00.000000+00:00\",\"retries\":1,\"success\":true}",
    "{\"kopf/condensed\":{\"spec\":{\"a\":\"blake2:00\"}}}\n{\"retries\":0}",
    "null\nnull",
    "2020-01-01T00:00:00.000001Z\n{\"retries\":18446744073709551615,\"message\":\"\\u0000\"}",
    "{\"peer\":{\"lastseen\":\"2020-01-01T00:00:00\",\"lifetime\":60,\"priority\":5}}\n{\"subrefs\":[\"b\",\"a\",\"a\"]}",
    "{\"peer\":{\"lastseen\":\"9999-12-31T23:59:59\",\"lifetime\":9223372036854775807,\"priority\":-5}}\n5",
];

const SELECTORS: [&str; 5] = [
    "myns-1\nmyns-*, !*-secret, myns-[!a-c]?",
    "{\"group\":\"g\",\"version\":\"v1\",\"any_name\":\"xs\"}\n{\"group\":\"g\",\"version\":\"v1\",\"plural\":\"xs\",\"kind\":\"X\",\"shortcuts\":[\"x\"],\"categories\":[\"all\"]}",
    "{\"any_name\":{\"everything\":true},\"callable\":true}\n{\"group\":\"\",\"version\":\"v1\",\"plural\":\"events\",\"preferred\":true}",
    "aaaaaaaaaaaaaaaaaaaaaaaa\n*a*a*a*a*a*a*b",
    "spec.a.b\nstatus",
];

const REVIEWS: [&str; 2] = [
    r#"{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"u","resource":{"group":"g","version":"v1","resource":"xs"},"subResource":"status","operation":"UPDATE","dryRun":false,"userInfo":{"username":"me","groups":["a"]},"object":{"kind":"X","apiVersion":"g/v1","metadata":{"name":"x"},"spec":{"x":1}},"oldObject":{"kind":"X","apiVersion":"g/v1","metadata":{"name":"x"},"spec":{}}}}"#,
    r#"{"request":{"uid":5,"resource":{"group":"","version":"v1","resource":"pods"},"userInfo":{},"object":null,"oldObject":{"metadata":{}}}}"#,
];

#[test]
fn objects_are_decoded_as_by_other_parsers_or_rejected() {
    run("objects", &OBJECTS, objects);
}

#[test]
fn any_two_values_keep_the_properties_of_diffs() {
    run("differences", &PAIRS, differences);
}

#[test]
fn any_patch_keeps_its_properties() {
    run("patches", &PAIRS, patches);
}

#[test]
fn any_stored_state_is_decoded_or_rejected() {
    run("codecs", &STATES, codecs);
}

#[test]
fn any_selector_keeps_its_properties() {
    run("selectors", &SELECTORS, selectors);
}

#[test]
fn any_review_is_answered_or_rejected() {
    run("reviews", &REVIEWS, reviews);
}
