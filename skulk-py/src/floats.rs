//! How do many numbers cross? Where they are: an array looks at them.

use pyo3::prelude::*;
use pyo3::types::PyDict;

/// Numbers that are an array's alone.
#[pyclass(frozen, module = "skulk")]
pub(crate) struct Floats {
    values: Vec<f32>,
    address: usize,
}

impl From<Vec<f32>> for Floats {
    fn from(mut values: Vec<f32>) -> Self {
        let address = values.as_mut_ptr().expose_provenance();
        Self { values, address }
    }
}

#[pymethods]
impl Floats {
    /// What NumPy makes an array of, which keeps this alive and may be written to.
    #[getter]
    fn __array_interface__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let array = PyDict::new(py);
        array.set_item("version", 3)?;
        array.set_item("shape", (self.values.len(),))?;
        array.set_item("typestr", if cfg!(target_endian = "big") { ">f4" } else { "<f4" })?;
        array.set_item("data", (self.address, false))?;
        Ok(array)
    }
}
