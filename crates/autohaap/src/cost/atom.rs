//! Time and memory of one atom on one replica. Search and pricing both stand on these figures.

use crate::cluster::Cluster;
use crate::model::{Model, Parts};
use crate::plan::Training;
use crate::units::{Bytes, Seconds};

/// Everything a cost is computed from.
pub struct Setting<'a> {
    /// The model.
    pub model: &'a Model,
    /// Its atoms expanded, same order.
    pub parts: Vec<Parts>,
    /// The cluster.
    pub cluster: &'a Cluster,
    /// Training settings.
    pub training: &'a Training,
}

/// A replica as far as an atom's cost depends on it.
#[derive(Debug, Clone, PartialEq)]
pub struct ReplicaShape {
    /// Device type (key of `cluster.device_types`); the slowest member where types mix.
    pub device_type: String,
    /// Slowest speed factor of the members.
    pub speed_factor: f64,
    /// Tensor parallelism.
    pub tp: u32,
    /// Context parallelism.
    pub cp: u32,
    /// Sequences per micro-batch.
    pub rows: u32,
    /// Expert parallelism of the stage.
    pub ep: u32,
    /// Expert tensor parallelism of the stage.
    pub etp: u32,
    /// Replicas in the stage (for ZeRO 2/3 and the expert data-parallel size).
    pub stage_replicas: u32,
    /// Where the TP group's members sit.
    pub tp_group: crate::cluster::Group,
    /// Where the CP group's members sit.
    pub cp_group: crate::cluster::Group,
    /// Where the EP group's members sit.
    pub ep_group: crate::cluster::Group,
    /// Where the replicas of the stage sit (one member each), for ZeRO 2/3.
    pub stage_group: crate::cluster::Group,
}

/// Time of one phase of one atom and micro-batch.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct PhaseTime {
    /// Compute, memory-bound work included.
    pub compute: Seconds,
    /// Exposed tensor-parallel communication.
    pub tp: Seconds,
    /// Exposed context-parallel communication.
    pub cp: Seconds,
    /// Exposed expert-parallel communication.
    pub ep: Seconds,
    /// Exposed ZeRO-2/3 communication inside the stage.
    pub zero: Seconds,
}

impl PhaseTime {
    /// Sum of all items.
    pub fn total(&self) -> Seconds {
        self.compute + self.tp + self.cp + self.ep + self.zero
    }
}

/// Cost of one atom on one replica (per device of it, per micro-batch).
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct AtomCost {
    /// Forward.
    pub forward: PhaseTime,
    /// Input gradient (attention-core backward included).
    pub input_grad: PhaseTime,
    /// Weight gradient.
    pub weight_grad: PhaseTime,
    /// Extra backward time under selective recompute (0 with flash attention).
    pub recompute_selective: PhaseTime,
    /// Extra backward time under full recompute.
    pub recompute_full: PhaseTime,
    /// Weight bytes of a device.
    pub weights: Bytes,
    /// Gradient bytes of a device.
    pub gradients: Bytes,
    /// Optimizer bytes of a device if unsharded, dense part: divided by the number of data-parallel holders under ZeRO >= 1.
    pub optimizer_dense: Bytes,
    /// The same for expert tensors: divided by the number of *expert* data-parallel holders.
    pub optimizer_expert: Bytes,
    /// Gradient bytes of dense tensors that a device contributes to the reduction (in the reduction's data type).
    pub sync_dense: Bytes,
    /// The same for expert tensors.
    pub sync_expert: Bytes,
    /// Activation bytes kept per micro-batch in flight.
    pub saved_none: Bytes,
    /// The same under selective recompute.
    pub saved_selective: Bytes,
    /// The same under full recompute.
    pub saved_full: Bytes,
    /// Largest transient while the atom runs (backward working set; for a fully recomputed atom its whole saved set is
    /// added by the stage rule).
    pub working_set: Bytes,
    /// Logits and loss transient (head, MTP).
    pub logits: Bytes,
}
