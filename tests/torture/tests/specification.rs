//! Every test that the specification names is there.
#![forbid(unsafe_code)]

use std::fs;
use std::path::Path;

#[test]
fn what_the_specification_names_is_there() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let page = fs::read_to_string(root.join("docs/SPECIFICATION.md")).expect("the specification is there");
    let mut named = 0;
    for word in page.split('`').skip(1).step_by(2) {
        if word.starts_with("crates/") {
            assert!(root.join(word).exists(), "{word}");
        }
        let Some((file, test)) = word.split_once("::").filter(|(_, test)| !test.ends_with('…')) else { continue };
        named += 1;
        let text = fs::read_to_string(root.join(format!("tests/e2e/tests/{file}.rs"))).unwrap_or_default();
        assert!(text.contains(&format!("fn {test}(")), "there is no test {word}");
    }
    assert!(named > 40, "only {named} tests are named");
}
