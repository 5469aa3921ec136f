//! Changes that make inputs hostile: of the text of clusters, of the trees of models and plans.

use proptest::prelude::*;
use proptest::sample::Index;
use serde_json::{Value, json};

/// A shorthand with every construct.
pub(crate) const SHORTHAND: &str = "2x8 A100-80G + 4x8 V100-32G + 1x(2 RTX4090 + 2 RTX3080) @ ib:8x400Gb";

/// Characters replaced, inserted, removed; the rest cut off.
pub(crate) fn edit_text(text: &str, edits: &[(usize, u8, char)]) -> String {
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

/// Characters that readers trip over.
pub(crate) fn odd_char() -> impl Strategy<Value = char> {
    prop_oneof![
        prop::sample::select(
            "0123456789x+@():= \n\t\"[]{}.,-_#'\\é×🦀\u{0}\u{feff}"
                .chars()
                .collect::<Vec<_>>()
        ),
        any::<char>(),
    ]
}

/// One change somewhere in a model file: a key dropped, a value of another kind or size.
pub(crate) fn edit_tree(value: &mut Value, picks: &mut impl Iterator<Item = u32>) {
    let junk = [
        Value::Null,
        Value::from(0),
        Value::from(-1),
        Value::from(3),
        Value::from(u64::MAX),
        Value::from(1e300),
        Value::from("x"),
        Value::from(vec![1, 0]),
        Value::from(true),
        Value::Object(serde_json::Map::new()),
        Value::from(1_048_576),
    ];
    let pick = picks.next().unwrap_or(0);
    match value {
        Value::Object(map) if !map.is_empty() => {
            let at = pick as usize % map.len();
            let key = map.keys().nth(at).cloned().unwrap_or_default();
            match pick >> 8 & 7 {
                0 => {
                    map.remove(&key);
                }
                1..=3 => {
                    map.insert(key, junk[(pick >> 12) as usize % junk.len()].clone());
                }
                _ => {
                    if let Some(inner) = map.get_mut(&key) {
                        edit_tree(inner, picks);
                    }
                }
            }
        }
        Value::Array(items) if !items.is_empty() => {
            let at = pick as usize % items.len();
            if (pick >> 8).is_multiple_of(4) {
                items.remove(at);
            } else {
                edit_tree(&mut items[at], picks);
            }
        }
        other => *other = junk[pick as usize % junk.len()].clone(),
    }
}

/// JSON pointers of all values below `value`.
#[allow(dead_code)]
pub(crate) fn pointers(value: &Value, here: &str, out: &mut Vec<String>) {
    out.push(here.to_owned());
    match value {
        Value::Object(map) => {
            for (key, inner) in map {
                let key = key.replace('~', "~0").replace('/', "~1");
                pointers(inner, &format!("{here}/{key}"), out);
            }
        }
        Value::Array(items) => {
            for (i, inner) in items.iter().enumerate() {
                pointers(inner, &format!("{here}/{i}"), out);
            }
        }
        _ => {}
    }
}

/// Values that plans do not expect.
pub(crate) fn odd_values() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(Value::Null),
        Just(json!(0)),
        Just(json!(1)),
        Just(json!(-1)),
        Just(json!(7)),
        Just(json!(u32::MAX)),
        Just(json!(u64::MAX)),
        Just(json!(0.5)),
        Just(json!(1e300)),
        Just(json!(true)),
        Just(json!("")),
        Just(json!("n0:0")),
        Just(json!(":")),
        Just(json!([])),
        Just(json!({})),
        Just(json!([0, 0])),
        any::<u16>().prop_map(|n| json!(n)),
        ".{0,12}".prop_map(|s| json!(s)),
    ]
}

/// One change of a tree: a value replaced, an item dropped or doubled.
pub(crate) fn change(tree: &mut Value, at: Index, how: u8, value: Value) {
    let mut all = Vec::new();
    pointers(tree, "", &mut all);
    let pointer = at.get(&all).clone();
    let Some(target) = tree.pointer_mut(&pointer) else {
        return;
    };
    match (how, target) {
        (0, Value::Array(items)) if !items.is_empty() => drop(items.pop()),
        (1, Value::Array(items)) if !items.is_empty() => {
            let first = items[0].clone();
            items.push(first);
        }
        (2, Value::Object(map)) => {
            if let Some(key) = map.keys().next().cloned() {
                map.remove(&key);
            }
        }
        (_, target) => *target = value,
    }
}
