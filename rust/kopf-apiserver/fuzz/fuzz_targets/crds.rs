//! Arbitrary bytes for the property of the same name.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| kopf_apiserver::fuzzing::crds(data));
