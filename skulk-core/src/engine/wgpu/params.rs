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
    Gather { width: u32, x_stride: u32, out_stride: u32, base: u32 }
    Norm { width: u32, x_stride: u32, out_stride: u32, eps: f32 }
    // Pairs of elements up to `half` are rotated.
    NormRope { head_dim: u32, half: u32, angles_stride: u32, x_stride: u32, eps: f32 }
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
        // Rows of one expert, and places that share a row of x.
        n_out: u32,
        x_div: u32,
        // Where the tokens begin whose rows are taken, and by what these are multiplied.
        token_base: u32,
        scale: f32,
    }
    ExpertsSort { n_places: u32, n_experts: u32 }
    // Rows of `n_in` elements, which weights multiply or not; strides in vec4.
    ExpertsSum { n_in: u32, y_stride: u32, out_stride: u32, n_used: u32, weighted: u32 }
    Route {
        n_experts: u32,
        n_used: u32,
        stride: u32,
        // Scores are sigmoids; else a softmax makes them.
        sigmoid: u32,
        corrected: u32,
        // Weights are multiplied by a number of each expert.
        scaled: u32,
        // Experts are taken of so many groups; of all where there is one.
        n_groups: u32,
        groups_used: u32,
        // The weights of a row are divided by their sum.
        normalise: u32,
        scale: f32,
    }
    // Of `n` logits a row.
    Top { n: u32, stride: u32, k: u32, n_slices: u32 }
    // Rows of keys and values; where their slots begin in the table.
    CacheWrite { rows: u32, n_kv: u32, k_stride: u32, v_stride: u32, slots: u32 }
    // Rows of one of them; what makes sums and differences a rotation.
    CacheQuantise { n_kv: u32, x_stride: u32, slots: u32, factor: f32 }
    Rotate { x_stride: u32, out_stride: u32, factor: f32 }
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
