//! How does Swift ask what a vindex's model knows? The searches of `VindexReader`.

use std::sync::Arc;

use serde::Serialize;
use serde_json::json as object;
use skulk::CancelToken;
use skulk::browse::VindexBrowser;
use skulk_contract::options::{
    DescribeOptions, NearestOptions, RelationsOptions, SelectOptions, WalkOptions,
};

use crate::convert::{float_bytes, floats, id_bytes, json, token_ids, unsigned};
use crate::error::{Answer, options};
use crate::vindex::RawVindex;
use crate::work::{RawCancel, run};

impl RawVindex {
    /// Searches on a thread of its own; what was found, as JSON.
    async fn search<T: Serialize + Send + 'static>(
        &self,
        cancel: Arc<RawCancel>,
        search: impl FnOnce(&VindexBrowser, CancelToken) -> skulk::Result<T> + Send + 'static,
    ) -> Answer<String> {
        let opened = self.opened()?;
        json(&run(move || search(&*opened.browser()?, cancel.0.clone())).await?)
    }
}

#[uniffi::export]
impl RawVindex {
    /// The embeddings of some tokens, behind each other, as floats.
    pub async fn embed(&self, tokens: Vec<u8>) -> Answer<Vec<u8>> {
        let (opened, tokens) = (self.opened()?, token_ids("token", &tokens)?);
        let embed = move || {
            let browser = opened.browser()?;
            let rows = tokens.iter().map(|token| browser.embed(*token));
            Ok(float_bytes(&rows.collect::<skulk::Result<Vec<_>>>()?.concat()))
        };
        run(embed).await
    }

    /// The products of all gate rows of a layer with a query, as floats.
    pub async fn scores(&self, layer: i64, query: Vec<u8>) -> Answer<Vec<u8>> {
        let (opened, layer) = (self.opened()?, unsigned("layer", layer)?);
        let compute = move || {
            let browser = opened.browser()?;
            let mut scores = vec![0.0; browser.reader().gates(layer)?.rows()];
            browser.scores(layer, &floats(&query), &mut scores)?;
            Ok(float_bytes(&scores))
        };
        run(compute).await
    }

    /// The features nearest to a query.
    pub async fn nearest(&self, query: Vec<u8>, given: String, cancel: Arc<RawCancel>) -> Answer<String> {
        let options = options(&given, NearestOptions::read)?;
        self.search(cancel, move |browser, cancel| {
            let layers = options.layers.unwrap_or_else(|| browser.layers());
            browser.nearest_in(layers, &floats(&query), options.k, &cancel)
        })
        .await
    }

    /// The features that a prompt wakes.
    pub async fn walk(&self, prompt: String, given: String, cancel: Arc<RawCancel>) -> Answer<String> {
        let options = options(&given, WalkOptions::read)?;
        self.search(cancel, move |browser, cancel| browser.walk(&prompt, &options.cancel(cancel))).await
    }

    /// What the model associates with an entity.
    pub async fn describe(&self, entity: String, given: String, cancel: Arc<RawCancel>) -> Answer<String> {
        let options = options(&given, DescribeOptions::read)?;
        self.search(cancel, move |browser, cancel| browser.describe(&entity, &options.cancel(cancel))).await
    }

    /// A feature and what it writes; null where nothing is written down of it.
    pub async fn feature(&self, layer: i64, feature: i64, cancel: Arc<RawCancel>) -> Answer<String> {
        let (layer, feature) = (unsigned("layer", layer)?, unsigned("feature", feature)?);
        self.search(cancel, move |browser, _| browser.feature(layer, feature)).await
    }

    /// The features of a layer.
    pub async fn features(&self, layer: i64, cancel: Arc<RawCancel>) -> Answer<String> {
        let layer = unsigned("layer", layer)?;
        self.search(cancel, move |browser, cancel| {
            let features = browser.features(layer)?;
            features.map(|feature| cancel.check().and(feature)).collect::<skulk::Result<Vec<_>>>()
        })
        .await
    }

    /// Features in order.
    pub async fn select(&self, given: String, cancel: Arc<RawCancel>) -> Answer<String> {
        let options = options(&given, SelectOptions::read)?;
        self.search(cancel, move |browser, cancel| browser.select(&options.cancel(cancel))).await
    }

    /// What the model's layers of facts write about.
    pub async fn relations(&self, given: String, cancel: Arc<RawCancel>) -> Answer<String> {
        let options = options(&given, RelationsOptions::read)?;
        self.search(cancel, move |browser, cancel| browser.relations(&options.cancel(cancel))).await
    }

    /// What does not change of the folder's tokenizer, as JSON.
    pub fn tokenizer(&self) -> Answer<String> {
        let browser = self.opened()?.browser()?;
        let tokenizer = browser.tokenizer()?;
        json(&object!({
            "bos": tokenizer.bos(),
            "eosIds": tokenizer.eos_ids(),
            "vocabSize": tokenizer.vocab_size(),
        }))
    }

    /// The tokens of a text.
    pub fn encode(&self, text: String, add_special: bool) -> Answer<Vec<u8>> {
        Ok(id_bytes(&self.opened()?.browser()?.tokenizer()?.encode(&text, add_special)?))
    }

    /// The text of tokens.
    pub fn decode(&self, ids: Vec<u8>, skip_special: bool) -> Answer<String> {
        let ids = token_ids("ids", &ids)?;
        Ok(self.opened()?.browser()?.tokenizer()?.decode(&ids, skip_special))
    }
}
