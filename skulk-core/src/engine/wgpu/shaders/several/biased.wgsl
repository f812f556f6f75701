// A matrix's biases.
@group(0) @binding(BIAS) var<storage, read> bias: array<f32>;

fn bias_of(o: u32) -> f32 {
    return bias[o];
}
