//! No input makes the readers panic, hang or allocate without bound.

use autohaap::cluster::{
    find_device, looks_like_shorthand, parse_bytes, parse_cards, parse_cluster, parse_rate,
};
use proptest::prelude::*;

use crate::mutations::{SHORTHAND, edit_text, odd_char};

proptest! {
    #[test]
    fn mutated_shorthands(edits in prop::collection::vec((0_usize..200, any::<u8>(), odd_char()), 0..8)) {
        let text = edit_text(SHORTHAND, &edits);
        let _ = looks_like_shorthand(&text);
        if let Err(p) = parse_cluster(&text, "t") {
            prop_assert!(!p.is_empty());
        }
    }

    #[test]
    fn mutated_files(edits in prop::collection::vec((0_usize..4000, any::<u8>(), odd_char()), 0..8)) {
        let text = edit_text(&autohaap::cluster::init_text("mixed"), &edits);
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
