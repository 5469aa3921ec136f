//! One command per node, and the files that batch systems take.

use std::fmt::Write as _;

use super::ranks;
use crate::plan::Plan;

/// A file to write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Script {
    /// File name.
    pub name: String,
    /// Contents.
    pub text: String,
}

/// A word of a POSIX shell command.
fn quoted(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:".contains(c);
    if !text.is_empty() && text.chars().all(plain) {
        text.to_owned()
    } else {
        format!("'{}'", text.replace('\'', "'\\''"))
    }
}

/// Lower-case letters, digits and dashes: a Kubernetes name.
fn label(text: &str) -> String {
    let name: String = text
        .chars()
        .map(|c| {
            if c.is_ascii_alphanumeric() {
                c.to_ascii_lowercase()
            } else {
                '-'
            }
        })
        .collect();
    name.trim_matches('-').to_owned()
}

/// `node-<name>.sh` per node, `slurm.sh` and `jobset.yaml`, for a plan and a training file on a shared file system.
pub fn scripts(plan: &Plan, plan_path: &str, config_path: &str, port: u16) -> Vec<Script> {
    let mut nodes: Vec<(String, usize)> = Vec::new();
    for rank in ranks(plan) {
        match nodes.last_mut() {
            Some((name, count)) if *name == rank.node => *count += 1,
            _ => nodes.push((rank.node, 1)),
        }
    }
    let Some((first, _)) = nodes.first().cloned() else {
        return Vec::new();
    };
    let command = |node: &str, master: &str| {
        format!(
            "autohaap launch {} --config {} --node {node} --master {master}",
            quoted(plan_path),
            quoted(config_path)
        )
    };
    let mut files: Vec<Script> = nodes
        .iter()
        .map(|(name, count)| Script {
            name: format!("node-{}.sh", label(name)),
            text: format!(
                "#!/bin/sh\n# {count} processes of node {name}. Start the scripts of all nodes within the timeout.\nset -eu\n\
exec {} \"$@\"\n",
                command(&quoted(name), &format!("\"${{MASTER:-{first}:{port}}}\""))
            ),
        })
        .collect();
    let names: Vec<&str> = nodes.iter().map(|(n, _)| n.as_str()).collect();
    let most = nodes.iter().map(|(_, c)| *c).max().unwrap_or(1);
    files.push(Script {
        name: "slurm.sh".into(),
        text: format!(
            "#!/bin/bash\n#SBATCH --job-name={}\n#SBATCH --nodes={}\n#SBATCH --nodelist={}\n#SBATCH --ntasks-per-node=1\n\
#SBATCH --cpus-per-task={most}\n#SBATCH --exclusive\n# One launcher per node; each starts the ranks of its own node, found by host \
name.\nset -eu\nexport MASTER={first}:{port}\nsrun bash -c '{}'\n",
            label(&plan.name),
            nodes.len(),
            names.join(","),
            command("\"$(hostname -s)\"", "\"$MASTER\"").replace('\'', "'\\''"),
        ),
    });
    files.push(Script {
        name: "jobset.yaml".into(),
        text: jobset(plan, &nodes, |node, master| command(&quoted(node), master), port),
    });
    files
}

fn jobset(
    plan: &Plan,
    nodes: &[(String, usize)],
    command: impl Fn(&str, &str) -> String,
    port: u16,
) -> String {
    let mut set = label(&plan.name);
    set.truncate(30);
    let set = set.trim_end_matches('-');
    let mut text = format!(
        "# A JobSet (jobset.x-k8s.io): one job per node of the plan. Set the image, and mount the shared folder of plan,\n\
# training file and run at the same path in every pod.\napiVersion: jobset.x-k8s.io/v1alpha2\nkind: JobSet\nmetadata:\n  name: \
{set}\nspec:\n  network:\n    enableDNSHostnames: true\n    subdomain: {set}\n  failurePolicy:\n    maxRestarts: 0\n  \
replicatedJobs:\n"
    );
    let master = format!(
        "{set}-{}-0-0.{set}:{port}",
        nodes.first().map(|(n, _)| label(n)).unwrap_or_default()
    );
    for (name, count) in nodes {
        let _ = write!(
            text,
            "  - name: {}\n    replicas: 1\n    template:\n      spec:\n        backoffLimit: 0\n        completions: 1\n        \
parallelism: 1\n        template:\n          spec:\n            restartPolicy: Never\n            nodeSelector:\n              \
kubernetes.io/hostname: {name}\n            containers:\n            - name: trainer\n              image: IMAGE\n              \
command: [\"/bin/sh\", \"-c\"]\n              args:\n              - {}\n              resources:\n                limits:\n                  \
nvidia.com/gpu: {count}\n",
            label(name),
            serde_json::Value::String(command(name, &master)),
        );
    }
    text
}
