//! Who computes a layer's feed-forward block? The engine itself, services that its plan names, or both together.
//!
//! Rows and routes are read once, all services begin, the engine computes what it has meanwhile, and then results are
//! added up in the order of selection. So a row's sum depends neither on who computed what nor on other rows.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::experts::{ExpertCall, FfnWork, ResidentExperts};
use super::load::Loader;
use crate::engine::backend::{Backend, Routes};
use crate::engine::cpu::kernels::Kernels;
use crate::engine::ffn::experts_of;
use crate::engine::{FfnJob, FfnLine, FfnMemory, FfnPair, FfnService, ShardSpec, StepCx};
use crate::error::{Error, ErrorKind, Result};

/// The feed-forward blocks of a shard's layers.
pub(super) struct Split<B: Backend> {
    spec: ShardSpec,
    own: ResidentExperts<B>,
    /// Those that the plan names, each once.
    services: Vec<Arc<dyn FfnService>>,
    /// By layer of the shard; none where the engine computes all.
    layers: Vec<Option<Apart>>,
    kernels: &'static Kernels,
    /// What calls work in, and none is using.
    rooms: Mutex<Vec<Room<B>>>,
}

/// A layer that is not all the engine's.
struct Apart {
    /// Who has each expert: [`OWN`], or a service.
    owners: Vec<usize>,
    /// All of them have this one.
    only: Option<usize>,
}

/// The engine itself, as an owner.
const OWN: usize = usize::MAX;

/// What a call needs on the host. Kept for the next one: a decoded token allocates nothing.
struct Room<B: Backend> {
    /// By service.
    lines: Vec<Line>,
    routes: Routes,
    input: Vec<f32>,
    residual: Vec<f32>,
    /// By place: what its expert gives.
    results: Vec<f32>,
    /// What one owner gave.
    given: Vec<f32>,
    sums: Vec<f32>,
    own: Option<Own<B>>,
}

struct Line {
    line: Box<dyn FfnLine>,
    pairs: Vec<FfnPair>,
    /// The place of each pair.
    places: Vec<usize>,
}

/// What the engine computes of layers that are not all its own: each place is a row that takes one expert.
struct Own<B: Backend> {
    rows: Vec<usize>,
    places: Vec<usize>,
    taken: Routes,
    routes: B::Routes,
    input: B::Buffer,
    output: B::Buffer,
}

impl<B: Backend> Split<B> {
    /// Room for the blocks of a shard, of which the engine computes its own as `work` says.
    pub(super) fn new(spec: &ShardSpec, work: Arc<FfnWork<B>>) -> Self {
        let mut services: Vec<Arc<dyn FfnService>> = Vec::new();
        let mut layers = Vec::with_capacity(spec.layers.len());
        for layer in spec.layers.clone() {
            let mut owners = vec![OWN; experts_of(&spec.arch.layers[layer])];
            for share in spec.ffn.of(layer) {
                let known = services.iter().position(|service| Arc::ptr_eq(service, &share.service));
                let service = known.unwrap_or_else(|| {
                    services.push(Arc::clone(&share.service));
                    services.len() - 1
                });
                owners[share.experts.clone()].fill(service);
            }
            let first = owners.first().copied().unwrap_or(OWN);
            let only = owners.iter().all(|owner| *owner == first).then_some(first);
            layers.push((only != Some(OWN)).then_some(Apart { owners, only }));
        }
        Self {
            own: ResidentExperts::new(spec.layers.start, work),
            spec: spec.clone(),
            services,
            layers,
            kernels: Kernels::detect(),
            rooms: Mutex::default(),
        }
    }

    /// Loads what the engine has of the shard's next layer.
    ///
    /// # Errors
    /// Whatever is wrong with its weights.
    pub(super) fn load_layer(&mut self, loader: &mut Loader<'_, B>) -> Result<()> {
        let layer = self.own.next_layer();
        let n = experts_of(&self.spec.arch.layers[layer]);
        let own: Vec<usize> = (0..n).filter(|expert| !self.spec.ffn.has(layer, *expert)).collect();
        self.own.load_layer(loader, &own)
    }

    /// What of the engine's own weights is in memory, where there is a budget for that.
    pub(super) fn memory(&self) -> Option<FfnMemory> {
        self.own.memory()
    }

    /// How the engine computes what it has.
    pub(super) fn work(&self) -> &Arc<FfnWork<B>> {
        self.own.work()
    }

    fn rooms(&self) -> MutexGuard<'_, Vec<Room<B>>> {
        self.rooms.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A new room, for as many calls at a time as there have never been.
    fn room(&self) -> Result<Room<B>> {
        let line = |service: &Arc<dyn FfnService>| {
            let line = service.line(self.spec.max_rows)?;
            Ok(Line { line, pairs: Vec::new(), places: Vec::new() })
        };
        Ok(Room {
            lines: self.services.iter().map(line).collect::<Result<_>>()?,
            routes: Routes::default(),
            input: Vec::new(),
            residual: Vec::new(),
            results: Vec::new(),
            given: Vec::new(),
            sums: Vec::new(),
            own: None,
        })
    }

    /// Computes one layer's block for the call's rows.
    ///
    /// # Errors
    /// What engine and services report: a missing expert or a lost reply is an error, never zeros. As [`StepCx::check`].
    pub(super) fn forward(&self, call: ExpertCall<'_, B>, cx: &StepCx<'_>) -> Result<()> {
        let at = call.layer.0.checked_sub(self.spec.layers.start);
        let Some(apart) = at.and_then(|at| self.layers.get(at)?.as_ref()) else {
            return self.own.forward(call);
        };
        let idle = self.rooms().pop();
        let mut room = idle.map_or_else(|| self.room(), Ok)?;
        let done = self.compute(apart, &mut room, call, cx);
        // After an error its lines may still have a job, which the next one takes the place of.
        self.rooms().push(room);
        done
    }

    fn compute(
        &self,
        apart: &Apart,
        room: &mut Room<B>,
        call: ExpertCall<'_, B>,
        cx: &StepCx<'_>,
    ) -> Result<()> {
        let ExpertCall { backend: device, layer, routes, rows, input, residual, stream, inner, output } =
            call;
        let hidden = self.spec.arch.hidden_size;
        let spec = self.spec.arch.layers[layer.0].ffn.experts;
        let on_input = spec.is_some_and(|experts| experts.on_input);
        resize(&mut room.input, rows * hidden)?;
        device.read(stream, input, &mut room.input)?;
        if self.services.iter().any(|service| service.wants_residual()) {
            resize(&mut room.residual, rows * hidden)?;
            device.read(stream, residual, &mut room.residual)?;
        }
        match routes {
            Some(routes) => device.read_routes(stream, routes, rows, &mut room.routes)?,
            None => room.routes.all_take_the_first(rows),
        }
        let Room { lines, routes, input: host, residual, results, given, sums, own } = room;
        let places = routes.ids.len();
        // Room for all of them: whatever a later step's rows take, it allocates no more.
        for line in &mut *lines {
            line.pairs.clear();
            line.pairs.reserve(places);
            line.places.clear();
            line.places.reserve(places);
        }
        let mut own = match apart.owners.contains(&OWN) {
            true => Some(self.own_part(device, own, places)?),
            false => None,
        };
        for place in 0..places {
            let (expert, row) = (routes.ids[place] as usize, routes.row(place as u32));
            let weight = routes.weights[place];
            match (apart.owners.get(expert), &mut own) {
                (Some(&OWN), Some(own)) => {
                    let known = self.own.place(layer, expert).ok_or_else(|| no_owner(expert))?;
                    own.rows.push(row);
                    own.places.push(place);
                    own.taken.ids.push(known as u32);
                    own.taken.weights.push(if on_input { weight } else { 1.0 });
                }
                (Some(&service), _) if service != OWN => {
                    lines[service].pairs.push(FfnPair::new(row as u32, expert as u32, weight));
                    lines[service].places.push(place);
                }
                _ => return Err(no_owner(expert)),
            }
        }
        if let Some(service) = apart.only {
            // It adds up itself.
            let Line { line, pairs, .. } = &mut lines[service];
            let job = FfnJob::new(layer, hidden, host, pairs).residual(residual);
            line.begin(&if spec.is_some() { job.sums() } else { job }, cx)?;
            resize(given, rows * hidden)?;
            line.wait(given, cx)?;
            return device.write(stream, given, output);
        }
        for line in lines.iter_mut().filter(|line| !line.pairs.is_empty()) {
            line.line.begin(&FfnJob::new(layer, hidden, host, &line.pairs).residual(residual), cx)?;
        }
        resize(results, places * hidden)?;
        resize(given, places * hidden)?;
        if let Some(own) = own.filter(|own| !own.rows.is_empty()) {
            device.gather(stream, input, &own.rows, &mut own.input)?;
            device.write_routes(stream, &own.taken, &mut own.routes)?;
            let (routes, rows) = (Some(&own.routes), own.rows.len());
            let (input, output) = (&own.input, &mut own.output);
            let call = ExpertCall {
                backend: device,
                layer,
                routes,
                rows,
                input,
                residual: input,
                stream,
                inner,
                output,
            };
            self.own.forward(call)?;
            let given = &mut given[..rows * hidden];
            device.read(stream, &own.output, given)?;
            scatter(given, &own.places, hidden, results);
        }
        for line in lines.iter_mut().filter(|line| !line.pairs.is_empty()) {
            let given = &mut given[..line.pairs.len() * hidden];
            line.line.wait(given, cx)?;
            scatter(given, &line.places, hidden, results);
        }
        resize(sums, rows * hidden)?;
        for (row, sum) in sums.chunks_exact_mut(hidden).enumerate() {
            sum.fill(0.0);
            for place in row * routes.n_used..(row + 1) * routes.n_used {
                let weight = if on_input { 1.0 } else { routes.weights[place] };
                self.kernels.add_scaled(sum, weight, &results[place * hidden..][..hidden]);
            }
        }
        device.write(stream, sums, output)
    }

    /// What the engine itself computes in, empty, with room for so many places.
    fn own_part<'a>(&self, device: &B, own: &'a mut Option<Own<B>>, most: usize) -> Result<&'a mut Own<B>> {
        let mut made = match own.take() {
            Some(own) => own,
            None => {
                let arch = &self.spec.arch;
                let used = arch.layers[self.spec.layers.clone()].iter();
                let used = used.map(|layer| layer.ffn.experts.map_or(1, |experts| experts.n_used)).max();
                let places = self.spec.max_rows.saturating_mul(used.unwrap_or(1));
                let buffer = || device.buffer(places, arch.hidden_size);
                Own {
                    rows: Vec::new(),
                    places: Vec::new(),
                    taken: Routes::of_one_each(),
                    routes: device.routes(places, 1)?,
                    input: buffer()?,
                    output: buffer()?,
                }
            }
        };
        let Own { rows, places, taken, .. } = &mut made;
        rows.clear();
        rows.reserve(most);
        places.clear();
        places.reserve(most);
        taken.ids.clear();
        taken.ids.reserve(most);
        taken.weights.clear();
        taken.weights.reserve(most);
        Ok(own.insert(made))
    }
}

/// Puts each row where its place is.
fn scatter(rows: &[f32], places: &[usize], width: usize, out: &mut [f32]) {
    for (row, place) in rows.chunks_exact(width.max(1)).zip(places) {
        out[place * width..][..width].copy_from_slice(row);
    }
}

fn resize(vector: &mut Vec<f32>, len: usize) -> Result<()> {
    vector.try_reserve(len.saturating_sub(vector.len())).map_err(|e| {
        Error::new(ErrorKind::OutOfMemory, "cannot reserve memory for the rows of a step")
            .with_hint("use a smaller prefill chunk")
            .with_source(e)
    })?;
    vector.resize(len, 0.0);
    Ok(())
}

fn no_owner(expert: usize) -> Error {
    Error::new(ErrorKind::Internal, "a row takes an expert that nobody has").with("expert", expert)
}
