//! The runtime's Python files, compiled in: a binary always starts the runtime it was built with.

/// The version of torch that the runtime is tested with (`tests/python/requirements.txt`).
pub const TORCH: &str = "2.15.0";

macro_rules! package {
    ($($name:literal),* $(,)?) => {
        &[$(($name, include_str!(concat!("../../../../python/autohaap/", $name)))),*]
    };
}

/// File name and text of every module of the package `autohaap`.
pub const PACKAGE: &[(&str, &str)] = package![
    "__init__.py",
    "architecture.py",
    "checkpoint.py",
    "data.py",
    "dropout.py",
    "edges.py",
    "errors.py",
    "executor.py",
    "groups.py",
    "model.py",
    "names.py",
    "optimizer.py",
    "parallel.py",
    "parameters.py",
    "plan.py",
    "preflight.py",
    "schedule.py",
    "train.py",
    "virtual.py",
    "weights.py",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_module_is_packed_and_the_pin_is_that_of_the_tests() {
        let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let mut names: Vec<String> = std::fs::read_dir(root.join("python/autohaap"))
            .unwrap()
            .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
            .filter(|name| std::path::Path::new(name).extension().is_some_and(|e| e == "py"))
            .collect();
        names.sort();
        let packed: Vec<&str> = PACKAGE.iter().map(|(name, _)| *name).collect();
        assert_eq!(packed, names);
        let pins = std::fs::read_to_string(root.join("tests/python/requirements.txt")).unwrap();
        assert!(pins.lines().any(|line| line == format!("torch=={TORCH}")));
    }
}
