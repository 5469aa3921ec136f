//! Codes E2xx: model.

use super::Code;

macro_rules! codes {
    ($($id:ident, $title:literal, $page:literal;)*) => {
        $(
            #[doc = $title]
            pub static $id: Code = Code { id: stringify!($id), title: $title, page: $page };
        )*
        /// All codes of this area.
        pub static ALL: &[&Code] = &[$(&$id),*];
    };
}

codes! {
    E201, "the model file is malformed or cut off",
"The file is not complete JSON (nor a Megatron argument list). The message names line and column of the first character
that cannot be right. Bare NaN, Infinity and -Infinity, which Python writes, are accepted in keys that are not used.

Example: a download that stopped early ends with `\"vocab_size\": 32`, without the closing brace.

Remedy: fetch the file again, or correct the named line. Comments and trailing commas are not JSON.";

    E202, "the file does not describe a model",
"The file is readable, but its keys are those of none of the accepted formats: Hugging Face config.json, Megatron
argument list, Meta params.json, SimuMax or calculon model JSON.

Example: a tokenizer_config.json or generation_config.json given by mistake.

Remedy: give the file named config.json beside the weights, or the id of a preset.";

    E203, "a required key is missing",
"Layers, hidden width, query heads, vocabulary and the width of the MLP decide parameters and time; none of them is
guessed. A key that is null counts as missing unless its class gives null a meaning (num_key_value_heads: as many as
query heads; n_inner: four times the hidden width).

Example: `{\"model_type\": \"llama\", \"num_hidden_layers\": 32}` lacks hidden_size, num_attention_heads, vocab_size and
intermediate_size: four problems at once.

Remedy: add the key; the hint lists the accepted spellings.";

    E204, "a value has the wrong type",
"Numbers are not taken from texts, fractions or truth values, because a silent conversion would hide a damaged file.

Example: `\"hidden_size\": \"4096\"` is a text; `\"hidden_size\": 4096.5` is a fraction.

Remedy: write the plain number without quotes; lists as `[..]`, truth values as true or false.";

    E205, "a value is outside its legal range",
"Counts must be at least 1 and below a generous bound (4096 layers, 2^20 hidden width, 2^16 heads and experts, 2^26
vocabulary), so that a damaged or hostile file can neither overflow a count nor stall the planner.

Example: `\"num_hidden_layers\": -3`, or 1000000000 layers.

Remedy: correct the value; the hint gives the nearest legal one.";

    E206, "a per-layer list does not match the number of layers",
"Lists such as layer_types, moe_layer_freq, hybrid_layer_pattern, block_configs and compress_ratios give one entry per
layer; linear_attn_config names each layer, counted from 1, in exactly one of its two lists.

Example: num_hidden_layers was changed from 48 to 24 by hand, but layer_types still has 48 entries.

Remedy: shorten or extend the list, or restore the number of layers.";

    E207, "query heads are not a multiple of key/value heads",
"Grouped-query attention gives each key/value head the same number of query heads.

Example: 32 query heads with 6 key/value heads; legal are 1, 2, 4, 8, 16 and 32.

Remedy: use a divisor of the query heads; the hint names the nearest.";

    E208, "the width is not a multiple of the heads",
"Without an explicit head width, one head gets hidden / heads channels, which must be a whole number. The same holds for
the inner width of a Mamba 2 layer.

Example: hidden_size 4096 with 24 heads and no head_dim.

Remedy: give head_dim, or a number of heads that divides the width.";

    E209, "more experts per token than experts",
"A token cannot be routed to more experts than the layer has.

Example: num_experts_per_tok 8 with num_local_experts 4.

Remedy: lower the experts per token or correct the number of experts.";

    E210, "an unknown word in a layer list or choice",
"Layer lists use fixed words (full_attention, sliding_attention, chunked_attention, linear_attention, mamba, conv) and
hybrid patterns fixed letters (M mamba2, - MLP, * attention, E experts). An unknown kind would make every figure wrong,
so it is not guessed.

Example: `\"layer_types\": [\"full_atention\", ...]`.

Remedy: correct the spelling; the hint names the nearest legal word.";

    E211, "the model file is too large",
"A model description has a few kilobytes. Files above 32 MiB, nested deeper than 100 levels or with more than a million
values are refused before they are parsed, so that they cannot exhaust memory.

Example: an index of weights (model.safetensors.index.json) or a tokenizer file.

Remedy: give config.json.";

    E212, "no preset has this name",
"Presets are known by short ids such as llama-3.1-8b; letter case, underscores, dots and dashes do not matter.

Example: `llama3.1-8b` is found; `llama-3.1-9b` is not, and the nearest ids are named.

Remedy: take one of the named ids, or give the path of a config.json.";

    E213, "the architecture is not a decoder chain",
"A plan cuts one chain of decoder layers between embedding and head into stages. Encoder-decoder models have two chains
with links across, which no stage assignment of this planner expresses.

Example: T5 or BART, whose config.json says `\"is_encoder_decoder\": true`.

Remedy: plan a decoder-only language model.";

    E214, "an argument's expression is not understood",
"`--moe-layer-freq` is a number or a list expression of 0 and 1 with `+` and `*`, as Megatron documents it. It is
evaluated by a small parser, never executed.

Example: `([0]*3+[1]*58)` marks three dense layers and 58 with experts.

Remedy: write the list in this form; its length must be the number of layers.";
}
