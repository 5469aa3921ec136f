//! What is simulated beside the plan as it stands: another schedule, what-ifs, engine details.

use super::action::Order;

/// Which order the pipelines run in.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Choice {
    /// That of the plan.
    #[default]
    Plan,
    /// A named schedule for every pipeline.
    Named(Name),
    /// These orders, one per pipeline.
    Orders(Vec<Order>),
}

/// Named schedules.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Name {
    /// All forwards, then all backwards.
    Gpipe,
    /// 1F1B at the plan's in-flight limits.
    OneF1b,
    /// 1F1B at the textbook limits p - s.
    Standard,
    /// 1F1B at twice the textbook warm-up.
    Eager,
    /// 1F1B at the least limits that sustain the slowest stage.
    Minimal,
    /// Megatron's interleaved 1F1B, groups of p.
    Interleaved,
    /// Breadth first over the chunks.
    LoopedBfs,
    /// Torch's interleaved zero bubble.
    InterleavedZeroBubble,
    /// Zero bubble H1.
    ZbH1,
    /// Zero bubble H2.
    ZbH2,
    /// Zero bubble with as many micro-batches in flight as each stage's memory holds, up to those of H2.
    ZbFit,
    /// Zero bubble V.
    ZbV,
    /// DualPipe-V.
    DualPipeV,
}

impl Name {
    /// All names as they are written.
    pub const ALL: [(&'static str, Self); 13] = [
        ("gpipe", Self::Gpipe),
        ("1f1b", Self::OneF1b),
        ("1f1b-standard", Self::Standard),
        ("1f1b-eager", Self::Eager),
        ("1f1b-minimal", Self::Minimal),
        ("interleaved", Self::Interleaved),
        ("looped-bfs", Self::LoopedBfs),
        ("interleaved-zb", Self::InterleavedZeroBubble),
        ("zb-h1", Self::ZbH1),
        ("zb-h2", Self::ZbH2),
        ("zb-fit", Self::ZbFit),
        ("zb-v", Self::ZbV),
        ("dualpipe-v", Self::DualPipeV),
    ];

    /// The schedule of that name; the depths of 1F1B go without it too (`eager`).
    pub fn parse(text: &str) -> Option<Self> {
        let short = |name: &str| {
            name.strip_prefix("1f1b-")
                .is_some_and(|s| s.eq_ignore_ascii_case(text))
        };
        Self::ALL
            .iter()
            .find(|(name, _)| name.eq_ignore_ascii_case(text) || short(name))
            .map(|(_, value)| *value)
    }

    /// Its name.
    pub fn text(self) -> &'static str {
        Self::ALL
            .iter()
            .find(|(_, value)| *value == self)
            .map_or("1f1b", |(name, _)| name)
    }
}

/// What a link what-if slows down.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SlowLink {
    /// The network cards of a node.
    Node(String),
    /// The boundary after a stage of a pipeline.
    Boundary(usize, usize),
}

/// What is simulated.
#[derive(Debug, Clone, PartialEq)]
pub struct Options {
    /// Order of work.
    pub schedule: Choice,
    /// Whether transfers and reductions share network cards, uplinks and host buses.
    pub contention: bool,
    /// Nodes whose devices are slower by a factor.
    pub slow_nodes: Vec<(String, f64)>,
    /// Links that are slower by a factor.
    pub slow_links: Vec<(SlowLink, f64)>,
    /// Relative standard deviation of compute times, and its seed.
    pub jitter: Option<(f64, u64)>,
    /// Added to every in-flight limit.
    pub more_in_flight: u32,
    /// Time of an overlapped forward and backward over the sum of the two: 1 hides communication only.
    pub pair_factor: f64,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            schedule: Choice::Plan,
            contention: true,
            slow_nodes: Vec::new(),
            slow_links: Vec::new(),
            jitter: None,
            more_in_flight: 0,
            pair_factor: 1.0,
        }
    }
}
