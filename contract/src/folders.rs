//! What can be asked of an open vindex folder, and of a library of cards? Plain data, by name, as of
//! [`functions`](crate::functions).

use std::borrow::Cow;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use serde::Serialize;
use skulk::browse::VindexBrowser;
use skulk::vindex::{VindexIndex, VindexPart};
use skulk::{
    CardLibrary, Checkpoint, EngineOptions, Error, ErrorKind, ModelCard, Region, TokenId, VindexReader,
};

use crate::functions::{Arguments, Work, failure, write};
use crate::options::{
    DescribeOptions, NearestOptions, RelationsOptions, SelectOptions, SliceOptions, WalkOptions,
};
use crate::{SliceReport, TensorInfo, VindexBands};

/// What a folder says of itself. A path that is no text has signs in place of what is none.
#[derive(Serialize)]
struct Facts<'a> {
    path: Cow<'a, str>,
    index: &'a VindexIndex,
    lacks: Vec<VindexPart>,
    layers: Vec<usize>,
    bands: VindexBands,
    tensors: Vec<TensorInfo<'a>>,
}

/// An open folder.
pub struct Folder {
    reader: Arc<VindexReader>,
    threads: usize,
    /// Made for the first search, since it starts threads.
    browser: Mutex<Option<Arc<VindexBrowser>>>,
}

/// What is found: data, or numbers and bytes that are too many for JSON.
pub enum Answer {
    /// Data.
    Json(String),
    /// Numbers.
    Floats(Vec<f32>),
    /// Bytes as they are stored.
    Bytes(Vec<u8>),
}

impl Folder {
    /// Opens the folder at `path`, which is searched on so many threads, all by default.
    ///
    /// # Errors
    /// As [`VindexReader::open`].
    pub fn open(path: PathBuf, threads: Option<usize>) -> skulk::Result<Self> {
        let threads = threads.unwrap_or_else(|| EngineOptions::default().threads);
        Ok(Self { reader: Arc::new(VindexReader::open(path)?), threads, browser: Mutex::default() })
    }

    /// The folder itself.
    pub fn reader(&self) -> &VindexReader {
        &self.reader
    }

    /// What is behind searches.
    ///
    /// # Errors
    /// As [`VindexReader::browse`].
    pub fn browser(&self) -> skulk::Result<Arc<VindexBrowser>> {
        let mut browser = self.browser.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(browser) = &*browser {
            return Ok(Arc::clone(browser));
        }
        Ok(Arc::clone(browser.insert(Arc::new(self.reader.browse(self.threads)?))))
    }

    /// Facts that were read when it was opened.
    ///
    /// # Errors
    /// None that can be helped.
    pub fn facts(&self) -> skulk::Result<String> {
        let index = self.reader.index();
        write(&Facts {
            path: self.reader.path().to_string_lossy(),
            index,
            lacks: self.reader.lacks(),
            layers: index.feature_layers(),
            bands: index.bands().into(),
            tensors: TensorInfo::all(&self.reader),
        })
    }

    /// Answers the question of this name.
    ///
    /// # Errors
    /// As the library's own function of that name; [`ErrorKind::Internal`] for names that there are not.
    pub fn ask(&self, name: &str, given: &mut Arguments, work: &Work) -> skulk::Result<Answer> {
        let cancel = work.cancel.clone();
        let json = match name {
            "array" => return floats(&self.region(given)?, work),
            "bytes" => return Ok(Answer::Bytes(self.region(given)?.bytes().to_vec())),
            "gates" => return floats(&self.reader.gates(given.take("layer")?)?, work),
            "embed" => return self.embed(&given.take::<Vec<u32>>("tokens")?),
            "scores" => return self.scores(given.take("layer")?, &given.take::<Vec<f32>>("query")?),
            "tensor" => write(&self.region(given)?.dtype().label()),
            "parts" => write(&self.reader.parts()?),
            "nearest" => {
                let query: Vec<f32> = given.take("query")?;
                let (options, spelling) = given.options()?;
                let options = NearestOptions::read(options, spelling)?;
                let browser = self.browser()?;
                let layers = options.layers.unwrap_or_else(|| browser.layers());
                write(&browser.nearest_in(layers, &query, options.k, &cancel)?)
            }
            "walk" => {
                let prompt: String = given.take("prompt")?;
                let (options, spelling) = given.options()?;
                write(&self.browser()?.walk(&prompt, &WalkOptions::read(options, spelling)?.cancel(cancel))?)
            }
            "describe" => {
                let entity: String = given.take("entity")?;
                let (options, spelling) = given.options()?;
                let options = DescribeOptions::read(options, spelling)?.cancel(cancel);
                write(&self.browser()?.describe(&entity, &options)?)
            }
            "feature" => {
                let (layer, feature) = (given.take("layer")?, given.take("feature")?);
                write(&self.browser()?.feature(layer, feature)?)
            }
            "features" => {
                let browser = self.browser()?;
                let features = browser.features(given.take("layer")?)?;
                let features = features.map(|feature| cancel.check().and(feature));
                write(&features.collect::<skulk::Result<Vec<_>>>()?)
            }
            "select" => {
                let (options, spelling) = given.options()?;
                write(&self.browser()?.select(&SelectOptions::read(options, spelling)?.cancel(cancel))?)
            }
            "relations" => {
                let (options, spelling) = given.options()?;
                write(&self.browser()?.relations(&RelationsOptions::read(options, spelling)?.cancel(cancel))?)
            }
            "slice" => {
                let target: PathBuf = given.take("target")?;
                let (options, spelling) = given.options()?;
                let options = SliceOptions::read(options, spelling)?.cancel(cancel).progress(work.steps());
                write(&SliceReport::from(&self.reader.slice(target, &options)?))
            }
            _ => Err(unknown(name)),
        };
        json.map(Answer::Json)
    }

    fn region(&self, given: &mut Arguments) -> skulk::Result<Region> {
        self.reader.region(&given.take::<String>("name")?)
    }

    fn embed(&self, tokens: &[u32]) -> skulk::Result<Answer> {
        let browser = self.browser()?;
        let embed = |token: &u32| browser.embed(TokenId(*token));
        Ok(Answer::Floats(tokens.iter().map(embed).collect::<skulk::Result<Vec<_>>>()?.concat()))
    }

    fn scores(&self, layer: usize, query: &[f32]) -> skulk::Result<Answer> {
        let mut scores = vec![0.0; self.reader.gates(layer)?.rows()];
        self.browser()?.scores(layer, query, &mut scores)?;
        Ok(Answer::Floats(scores))
    }
}

/// All numbers of a tensor.
fn floats(region: &Region, work: &Work) -> skulk::Result<Answer> {
    /// Rows between looks at whether the work goes on.
    const ROWS: usize = 1024;
    let mut values = Vec::new();
    let size = region.rows().checked_mul(region.row_len());
    let size = size.filter(|size| values.try_reserve_exact(*size).is_ok());
    let size =
        size.ok_or_else(|| Error::new(ErrorKind::OutOfMemory, "cannot reserve memory for a tensor"))?;
    values.resize(size, 0.0);
    let parts = values.chunks_mut((ROWS * region.row_len()).max(1));
    for (i, part) in parts.enumerate() {
        work.cancel.check()?;
        let start = i * ROWS;
        region.read_rows(start..region.rows().min(start + ROWS), part)?;
    }
    Ok(Answer::Floats(values))
}

/// Answers the question of this name about a library of cards.
///
/// # Errors
/// As the library's own function of that name; [`ErrorKind::Internal`] for names that there are not.
pub fn ask_library(library: &mut CardLibrary, name: &str, given: &mut Arguments) -> skulk::Result<String> {
    match name {
        "ids" => write(&library.iter().map(|card| &card.model_id).collect::<Vec<_>>()),
        "get" => {
            let card = library.get(&given.take::<String>("modelId")?);
            Ok(card.map_or_else(|| "null".to_owned(), ModelCard::to_json))
        }
        "file" => write(&library.file(&given.take::<String>("modelId")?)),
        "folders" => write(&library.folders().collect::<Vec<_>>()),
        "problems" => {
            Ok(format!("[{}]", library.problems().iter().map(failure).collect::<Vec<_>>().join(",")))
        }
        "reload" => write(&library.reload()),
        "addFolder" => write(&library.add_folder(given.take::<PathBuf>("folder")?)),
        "save" => {
            let folder: PathBuf = given.take("folder")?;
            write(&library.save(folder, &given.card()?)?)
        }
        "remove" => write(&library.remove(&given.take::<String>("modelId")?)?),
        _ => Err(unknown(name)),
    }
}

fn unknown(name: &str) -> Error {
    Error::new(ErrorKind::Internal, format!("there is no question `{name}`"))
}
