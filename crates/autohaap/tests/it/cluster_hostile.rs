//! No input makes the readers panic, hang or allocate without bound.

use autohaap::cluster::{
    find_device, looks_like_shorthand, parse_bytes, parse_cards, parse_cluster, parse_rate,
};
use proptest::prelude::*;

const SHORTHAND: &str = "2x8 A100-80G + 4x8 V100-32G + 1x(2 RTX4090 + 2 RTX3080) @ ib:8x400Gb";

fn mutate(text: &str, edits: &[(usize, u8, char)]) -> String {
    let mut chars: Vec<char> = text.chars().collect();
    for (at, kind, c) in edits {
        if chars.is_empty() {
            break;
        }
        let at = at % chars.len();
        match kind % 4 {
            0 => chars[at] = *c,
            1 => chars.insert(at, *c),
            2 => {
                chars.remove(at);
            }
            _ => chars.truncate(at),
        }
    }
    chars.into_iter().collect()
}

fn odd_char() -> impl Strategy<Value = char> {
    prop_oneof![
        prop::sample::select(
            "0123456789x+@():= \n\t\"[]{}.,-_#'\\é×🦀\u{0}\u{feff}"
                .chars()
                .collect::<Vec<_>>()
        ),
        any::<char>(),
    ]
}

proptest! {
    #[test]
    fn mutated_shorthands(edits in prop::collection::vec((0_usize..200, any::<u8>(), odd_char()), 0..8)) {
        let text = mutate(SHORTHAND, &edits);
        let _ = looks_like_shorthand(&text);
        if let Err(p) = parse_cluster(&text, "t") {
            prop_assert!(!p.is_empty());
        }
    }

    #[test]
    fn mutated_files(edits in prop::collection::vec((0_usize..4000, any::<u8>(), odd_char()), 0..8)) {
        let text = mutate(&autohaap::cluster::init_text("mixed"), &edits);
        match parse_cluster(&text, "t") {
            Ok(c) => { let _ = (c.classes(), c.digest()); }
            Err(p) => prop_assert!(p.0.iter().all(|x| !x.message.is_empty())),
        }
    }

    #[test]
    fn any_text(text in any::<String>()) {
        let _ = (parse_cluster(&text, "t").is_ok(), find_device(&text).is_ok(), parse_rate(&text), parse_bytes(&text), parse_cards(&text));
    }
}

#[test]
fn large_counts_are_refused_before_expansion() {
    let text = "[[nodes]]\nname = \"a\"\ncount = 100000\ndevices = [{ type = \"A100\", count = 100000 }]\n";
    assert_eq!(parse_cluster(text, "t").unwrap_err().0[0].code.id, "E307");
    let node = |i: u32| format!("[[nodes]]\nname = \"a{i}\"\ncount = 50000\ndevices = \"8 A100\"\n");
    let many = (0..3000).map(node).collect::<Vec<_>>().concat();
    assert_eq!(parse_cluster(&many, "t").unwrap_err().0[0].code.id, "E307");
    let nested = format!("x = {}{}", "[".repeat(50_000), "]".repeat(50_000));
    assert!(parse_cluster(&nested, "t").is_err());
    assert_eq!(
        parse_cluster("12500x8 A100 @ ib:8x200Gb", "t")
            .unwrap()
            .total_devices(),
        100_000
    );
}
