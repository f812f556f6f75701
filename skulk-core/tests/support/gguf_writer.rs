//! How does a test get a GGUF file? This writes one from values and tensor bytes, wrong ones too.

/// ggml's numbers of the storage types that tests write.
pub mod types {
    pub const F32: u32 = 0;
    pub const F16: u32 = 1;
    pub const Q4_0: u32 = 2;
    pub const Q8_0: u32 = 8;
    pub const Q4_K: u32 = 12;
    pub const Q8_1: u32 = 9;
}

/// A GGUF file in the making. Nothing is checked, so that broken files can be written as well.
#[derive(Debug, Clone)]
pub struct GgufWriter {
    version: u32,
    alignment: u64,
    entries: Vec<u8>,
    entry_count: u64,
    tensors: Vec<Tensor>,
}

#[derive(Debug, Clone)]
struct Tensor {
    name: String,
    /// Innermost dimension first, as in the file.
    dims: Vec<u64>,
    kind: u32,
    /// From the start of the data; assigned while writing when absent.
    offset: Option<u64>,
    bytes: Vec<u8>,
}

impl Default for GgufWriter {
    fn default() -> Self {
        Self { version: 3, alignment: 32, entries: Vec::new(), entry_count: 0, tensors: Vec::new() }
    }
}

impl GgufWriter {
    pub fn new() -> Self {
        Self::default()
    }

    pub fn version(mut self, version: u32) -> Self {
        self.version = version;
        self
    }

    /// Lays tensors out at multiples of `alignment` and says so in `general.alignment`.
    pub fn alignment(mut self, alignment: u32) -> Self {
        self.alignment = alignment.into();
        self.u32("general.alignment", alignment)
    }

    /// Any value: its type number and its bytes.
    pub fn raw(mut self, key: &str, kind: u32, value: &[u8]) -> Self {
        push_str(&mut self.entries, key);
        self.entries.extend(kind.to_le_bytes());
        self.entries.extend(value);
        self.entry_count += 1;
        self
    }

    pub fn u8(self, key: &str, value: u8) -> Self {
        self.raw(key, 0, &[value])
    }

    pub fn u16(self, key: &str, value: u16) -> Self {
        self.raw(key, 2, &value.to_le_bytes())
    }

    pub fn u32(self, key: &str, value: u32) -> Self {
        self.raw(key, 4, &value.to_le_bytes())
    }

    /// Numbers of the family: their keys follow its name.
    pub fn sizes(self, family: &str, sizes: &[(&str, usize)]) -> Self {
        sizes.iter().fold(self, |file, (key, size)| file.u32(&format!("{family}.{key}"), *size as u32))
    }

    pub fn i32(self, key: &str, value: i32) -> Self {
        self.raw(key, 5, &value.to_le_bytes())
    }

    pub fn f32(self, key: &str, value: f32) -> Self {
        self.raw(key, 6, &value.to_le_bytes())
    }

    pub fn bool(self, key: &str, value: bool) -> Self {
        self.raw(key, 7, &[value.into()])
    }

    pub fn str(self, key: &str, value: &str) -> Self {
        let mut bytes = Vec::new();
        push_str(&mut bytes, value);
        self.raw(key, 8, &bytes)
    }

    pub fn strs<S: AsRef<str>>(self, key: &str, values: &[S]) -> Self {
        let mut bytes = Vec::new();
        for value in values {
            push_str(&mut bytes, value.as_ref());
        }
        self.array(key, 8, values.len() as u64, &bytes)
    }

    pub fn f32s(self, key: &str, values: &[f32]) -> Self {
        let bytes: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
        self.array(key, 6, values.len() as u64, &bytes)
    }

    pub fn i32s(self, key: &str, values: &[i32]) -> Self {
        let bytes: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
        self.array(key, 5, values.len() as u64, &bytes)
    }

    pub fn bools(self, key: &str, values: &[bool]) -> Self {
        let bytes: Vec<u8> = values.iter().map(|&v| v.into()).collect();
        self.array(key, 7, values.len() as u64, &bytes)
    }

    /// Any array: its elements' type number, its length and its elements' bytes.
    pub fn array(self, key: &str, element: u32, len: u64, elements: &[u8]) -> Self {
        let mut bytes = element.to_le_bytes().to_vec();
        bytes.extend(len.to_le_bytes());
        bytes.extend(elements);
        self.raw(key, 9, &bytes)
    }

    /// The three keys of a shard; `no` counts from zero.
    pub fn split(self, no: u16, count: u16, tensors: i32) -> Self {
        self.u16("split.no", no).u16("split.count", count).i32("split.tensors.count", tensors)
    }

    /// A tensor; `shape` has the outermost dimension first.
    pub fn tensor(self, name: &str, kind: u32, shape: &[u64], bytes: &[u8]) -> Self {
        self.push(name, kind, shape, None, bytes)
    }

    /// A float matrix or vector.
    pub fn tensor_f32(self, name: &str, shape: &[u64], values: &[f32]) -> Self {
        let bytes: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
        self.tensor(name, types::F32, shape, &bytes)
    }

    /// A tensor that claims to lie at `offset` and brings no data of its own.
    pub fn tensor_at(self, name: &str, kind: u32, shape: &[u64], offset: u64) -> Self {
        self.push(name, kind, shape, Some(offset), &[])
    }

    fn push(mut self, name: &str, kind: u32, shape: &[u64], offset: Option<u64>, bytes: &[u8]) -> Self {
        self.tensors.push(Tensor {
            name: name.to_owned(),
            dims: shape.iter().rev().copied().collect(),
            kind,
            offset,
            bytes: bytes.to_vec(),
        });
        self
    }

    /// The header alone.
    pub fn header(&self) -> Vec<u8> {
        self.write().0
    }

    /// The whole file.
    pub fn build(&self) -> Vec<u8> {
        let (mut file, data) = self.write();
        pad(&mut file, self.alignment);
        file.extend(data);
        file
    }

    fn write(&self) -> (Vec<u8>, Vec<u8>) {
        let mut header = b"GGUF".to_vec();
        header.extend(self.version.to_le_bytes());
        header.extend((self.tensors.len() as u64).to_le_bytes());
        header.extend(self.entry_count.to_le_bytes());
        header.extend(&self.entries);
        let mut data = Vec::new();
        for tensor in &self.tensors {
            push_str(&mut header, &tensor.name);
            header.extend((tensor.dims.len() as u32).to_le_bytes());
            for dim in &tensor.dims {
                header.extend(dim.to_le_bytes());
            }
            header.extend(tensor.kind.to_le_bytes());
            let offset = tensor.offset.unwrap_or(data.len() as u64);
            header.extend(offset.to_le_bytes());
            data.extend(&tensor.bytes);
            pad(&mut data, self.alignment);
        }
        (header, data)
    }
}

fn push_str(bytes: &mut Vec<u8>, text: &str) {
    bytes.extend((text.len() as u64).to_le_bytes());
    bytes.extend(text.as_bytes());
}

fn pad(bytes: &mut Vec<u8>, alignment: u64) {
    let len = (bytes.len() as u64).next_multiple_of(alignment);
    bytes.resize(len as usize, 0);
}

/// A valid file with a value of every kind and three tensors.
pub fn small() -> GgufWriter {
    GgufWriter::new()
        .str("general.architecture", "llama")
        .u8("a.u8", 200)
        .raw("a.i8", 1, &[0xff])
        .u16("a.u16", 1000)
        .raw("a.i16", 3, &(-3i16).to_le_bytes())
        .u32("llama.block_count", 2)
        .i32("a.i32", -5)
        .f32("llama.rope.freq_base", 10000.0)
        .bool("a.bool", true)
        .raw("a.u64", 10, &u64::MAX.to_le_bytes())
        .raw("a.i64", 11, &i64::MIN.to_le_bytes())
        .raw("a.f64", 12, &0.5f64.to_le_bytes())
        .strs("tokenizer.ggml.tokens", &["<s>", "ä", ""])
        .f32s("tokenizer.ggml.scores", &[0.0, -1.5])
        .i32s("tokenizer.ggml.token_type", &[3, 1, 1])
        .bools("a.bools", &[true, false])
        .array("a.u64s", 10, 1, &u64::MAX.to_le_bytes())
        .array("a.nested", 9, 1, &[4, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0])
        .tensor_f32("output_norm.weight", &[4], &[1.0, 2.0, 3.0, 4.0])
        .tensor("blk.0.ffn_up.weight", types::Q8_0, &[2, 32], &[7; 68])
        .tensor("token_embd.weight", types::F16, &[3, 4], &[9; 24])
}
