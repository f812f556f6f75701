//! Which numbers does a kernel take? Structs that Rust fills in and shaders read, declared once.

/// What a dispatch hands to its kernel beside the operands.
pub(super) trait Params {
    /// The declaration of `Params`, and of `p`, which holds them.
    const WGSL: &'static str;

    /// Appends them as the shader reads them.
    fn write(&self, out: &mut Vec<u8>);
}

macro_rules! params {
    ($($name:ident { $($field:ident: $type:ident),* $(,)? })*) => {$(
        #[derive(Debug, Clone, Copy, Default)]
        pub(super) struct $name {
            $(pub(super) $field: $type,)*
        }

        impl Params for $name {
            const WGSL: &'static str = concat!(
                "struct Params {\n",
                $("    ", stringify!($field), ": ", stringify!($type), ",\n",)*
                "}\n@group(1) @binding(0) var<uniform> p: Params;\n",
            );

            fn write(&self, out: &mut Vec<u8>) {
                // All are words, so that neither language leaves gaps.
                $(out.extend(self.$field.to_le_bytes());)*
            }
        }

        const _: () = assert!(size_of::<$name>() <= super::kernels::PARAMS as usize);
    )*};
}

// Strides are in floats, from one row to the next; those in vec4 are divided by four.
params! {
    // A cap, a limit or a factor; how steep a sigmoid is.
    Elementwise { width: u32, y_stride: u32, x_stride: u32, number: f32, alpha: f32 }
    GateHeads { width: u32, head_dim: u32, gates_stride: u32, x_stride: u32 }
    // The table of rows begins at `base`.
    Gather { width: u32, x_stride: u32, out_stride: u32, base: u32, behind: u32 }
    // A factor where y is not normed.
    AddNorm { width: u32, y_stride: u32, x_stride: u32, out_stride: u32, scale: f32, y_eps: f32, eps: f32 }
    // Pairs of elements up to `half` are rotated, from element `plain` on.
    NormRope { head_dim: u32, plain: u32, half: u32, angles_stride: u32, x_stride: u32, eps: f32 }
    // Of all that read weights; each uses some.
    Weights {
        n_in: u32,
        row_bytes: u32,
        // The chunk's rows of the matrix, of experts whole ones.
        first_row: u32,
        n_rows: u32,
        // In vec4.
        x_stride: u32,
        out_stride: u32,
        // Rows of x and of the result.
        rows: u32,
        has_bias: u32,
        // Rows of one expert, and places of a row; whether shares of these count.
        n_out: u32,
        x_div: u32,
        weighted: u32,
        // Where the tokens begin whose rows are taken, and by what these are multiplied.
        token_base: u32,
        scale: f32,
        // From one head's results to the next one's.
        to_head: u32,
    }
    // Of several matrices, by number; what gates take.
    Several {
        n_in: u32,
        // In vec4.
        x_stride: u32,
        rows: u32,
        n_rows_0: u32,
        n_rows_1: u32,
        n_rows_2: u32,
        n_rows_3: u32,
        row_bytes_0: u32,
        row_bytes_1: u32,
        row_bytes_2: u32,
        row_bytes_3: u32,
        number: f32,
        alpha: f32,
    }
    // Of gates and the other projection, as above.
    ExpertsGated {
        n_in: u32,
        x_stride: u32,
        out_stride: u32,
        n_out: u32,
        x_div: u32,
        row_bytes_0: u32,
        row_bytes_1: u32,
        has_bias: u32,
        number: f32,
        alpha: f32,
    }
    ExpertsSort { n_places: u32, n_experts: u32 }
    // Rows of `n_in` elements, which weights multiply or not; strides in vec4.
    ExpertsSum { n_in: u32, y_stride: u32, out_stride: u32, n_used: u32, weighted: u32 }
    Route { stride: u32, scale: f32 }
    // Where weights begin, and how many numbers a row has that they multiply.
    Blend { width: u32, x_stride: u32, out_stride: u32, first: u32, n: u32, by_stride: u32, plus: f32 }
    // What the least size is, or how many deviations.
    RowsAlone { width: u32, y_stride: u32, x_stride: u32, number: f32 }
    // Where page numbers and rows begin in the table, and the first row of the dispatch.
    Choose {
        pages: u32,
        rows: u32,
        from_row: u32,
        n_heads: u32,
        // Where the indexer's keys begin in what is kept.
        first: u32,
        q_stride: u32,
        weights_stride: u32,
        out_stride: u32,
        most: u32,
    }
    AttendChosen { pages: u32, rows: u32, n_heads: u32, q_stride: u32, out_stride: u32, most: u32, scale: f32 }
    SplitHeads { width: u32, head_dim: u32, x_stride: u32, out_stride: u32 }
    // Where queries, keys and values begin in their products' rows, how far apart those of key heads are, and how far
    // apart rows.
    StateInputs {
        query: u32,
        query_step: u32,
        query_stride: u32,
        key: u32,
        key_step: u32,
        key_stride: u32,
        value: u32,
        value_step: u32,
        value_stride: u32,
        // Positions of the convolution.
        taps: u32,
        state_len: u32,
        out_stride: u32,
        // Where runs, and rows' numbers of theirs, begin in the table.
        runs: u32,
        of_rows: u32,
    }
    StateSteps {
        n_steps: u32,
        // Time steps of a head, and heads of a key head.
        of_head: u32,
        of_key: u32,
        // Where results begin in a row.
        first: u32,
        out_stride: u32,
        // As of products above.
        steps_stride: u32,
        step: u32,
        step_step: u32,
        shares_stride: u32,
        share: u32,
        share_step: u32,
        // Bounds of time steps.
        least: f32,
        most: f32,
    }
    Recur {
        runs: u32,
        n_heads: u32,
        n_key_heads: u32,
        // Heads use key heads in turn; else consecutive ones the same.
        in_turn: u32,
        state_len: u32,
        row_stride: u32,
        // Where shares begin in a row.
        shares: u32,
        out_stride: u32,
    }
    StateOutputs {
        // Elements of a norm, and weights that there are.
        width: u32,
        weights: u32,
        // Gates of a key head, where they begin, and how far apart they are.
        of_key: u32,
        gate: u32,
        gate_step: u32,
        gates_stride: u32,
        x_stride: u32,
        out_stride: u32,
        eps: f32,
    }
    // Of `n` logits a row.
    Top { n: u32, stride: u32, k: u32, n_slices: u32 }
    // Rows of keys and values; where their slots begin in the table.
    CacheWrite { rows: u32, n_kv: u32, k_stride: u32, v_stride: u32, slots: u32 }
    // Pairs of elements up to `half` are rotated.
    KeepHeads {
        n_heads: u32,
        n_kv: u32,
        half: u32,
        angles_stride: u32,
        q_stride: u32,
        k_stride: u32,
        v_stride: u32,
        slots: u32,
        eps: f32,
    }
    // Rows of one of them, or of a part whose first element is number `first` of a head's; what makes sums and
    // differences a rotation.
    CacheQuantise { n_kv: u32, x_stride: u32, slots: u32, first: u32, factor: f32 }
    CachePart { rows: u32, x_stride: u32, slots: u32, first: u32 }
    // Elements from one head to the next, and where those are that are rotated.
    Rotate { of_head: u32, first: u32, x_stride: u32, out_stride: u32, factor: f32 }
    // Elements of a head that its weights take and give, and those behind.
    HeadsGather { n_in: u32, n_out: u32, behind: u32, x_stride: u32, in_stride: u32, out_stride: u32 }
    Attend {
        // Where the first span is in the table, and how many there are.
        spans: u32,
        n_spans: u32,
        // Rows of the longest span.
        rows: u32,
        // Where page numbers begin in the table.
        pages: u32,
        n_heads: u32,
        n_kv: u32,
        // Positions that a row sees; 0 where it sees all.
        window: u32,
        // Positions are in chunks of so many; else it sees the last ones.
        chunks: u32,
        q_stride: u32,
        out_stride: u32,
        scale: f32,
        cap: f32,
        // Positions of a split.
        split_len: u32,
        n_splits: u32,
    }
}
