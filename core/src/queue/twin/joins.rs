//! What braid's own queue does otherwise, said slowly: I/Os join when they arrive, and reads that are near leave together.

use alloc::vec;
use alloc::vec::Vec;

use super::{Queued, Twin, interactive};
use crate::queue::merge::Bounds;
use crate::queue::waiting::Waiting;
use crate::request::DeviceOp;

/// I/Os that have joined.
#[derive(Clone)]
pub(super) struct Request {
    /// Order of creation.
    pub(super) number: u64,
    /// When the oldest of them came.
    pub(super) arrived: u64,
    /// In device order.
    pub(super) ios: Vec<Waiting>,
}

impl Request {
    pub(super) fn start(&self) -> u64 {
        self.ios[0].offset
    }

    fn end(&self) -> u64 {
        self.ios[self.ios.len() - 1].end()
    }

    fn is_joinable(&self) -> bool {
        let io = self.ios[0];
        matches!(io.op, DeviceOp::Read | DeviceOp::Write { .. }) && io.mergeable && io.len > 0
    }
}

impl Twin {
    /// All requests of a class.
    pub(super) fn requests(&self, c: usize) -> Vec<Request> {
        let mut all: Vec<Request> = vec![];
        for Queued { io, request, .. } in self.queued.iter().filter(|q| q.io.class.index() == c) {
            match all.iter_mut().find(|there| there.number == *request) {
                Some(there) => there.ios.push(*io),
                None => all.push(Request { number: *request, arrived: 0, ios: vec![*io] }),
            }
        }
        for request in &mut all {
            request.ios.sort_by_key(|io| io.offset);
            request.arrived = request.ios.iter().map(|io| io.arrived.0).min().expect("it has some");
        }
        all
    }

    /// The newest I/O joins the youngest request that ends where it begins, otherwise the youngest that begins where it
    /// ends, if they fit.
    pub(super) fn join_newest(&mut self, bounds: Bounds) {
        let Some(Queued { io, request: new, .. }) = self.queued.last().cloned() else { return };
        let is_read = |op| op == DeviceOp::Read;
        let mut others = self.requests(io.class.index());
        let Some(at) = others.iter().position(|there| there.number == new && there.is_joinable()) else { return };
        let newest = others.remove(at);
        others.retain(|there| there.is_joinable() && is_read(there.ios[0].op) == is_read(io.op));
        let youngest = |touches: &dyn Fn(&Request) -> bool| {
            others.iter().filter(|there| touches(there)).max_by_key(|there| there.number).cloned()
        };
        let (back, front) = (youngest(&|there| there.end() == io.offset), youngest(&|there| there.start() == io.end()));
        if let Some(back) = back.filter(|back| self.fits(bounds, back, &newest, 0)) {
            self.rename(new, back.number);
            self.joined[0] += 1;
            let longer = self.requests(io.class.index()).into_iter().find(|there| there.number == back.number);
            let longer = longer.expect("it is there");
            if let Some(front) = front.filter(|front| self.fits(bounds, &longer, front, 0)) {
                self.rename(front.number, back.number);
            }
        } else if let Some(front) = front.filter(|front| self.fits(bounds, &newest, front, 0)) {
            self.rename(new, front.number);
            self.joined[0] += 1;
        }
    }

    /// Serial numbers of what leaves with a request, in device order.
    pub(super) fn travellers(&mut self, number: u64, bounds: Bounds) -> Vec<u64> {
        let class = self.queued.iter().find(|q| q.request == number).expect("it waits").io.class.index();
        let (mut chosen, mut others): (Vec<Request>, Vec<Request>) =
            self.requests(class).into_iter().partition(|there| there.number == number);
        let mut run = chosen.remove(0);
        let gap = self.s.read_gap_limit();
        if gap > 0 && run.is_joinable() && run.ios[0].op == DeviceOp::Read {
            others.retain(|there| there.is_joinable() && there.ios[0].op == DeviceOp::Read);
            let mut top = run.start();
            let by_place = |there: &&Request| (there.start(), there.number);
            while let Some(below) = others.iter().filter(|there| there.start() < run.start()).max_by_key(by_place)
                && self.fits(bounds, below, &run, gap)
            {
                let mut ios = below.ios.clone();
                ios.append(&mut run.ios);
                run.ios = ios;
                self.joined[1] += 1;
            }
            while let Some(above) = others.iter().filter(|there| there.start() > top).min_by_key(by_place)
                && self.fits(bounds, &run, above, gap)
            {
                top = above.start();
                run.ios.extend(&above.ios);
                self.joined[1] += 1;
            }
        }
        let serial = |io: &Waiting| self.queued.iter().find(|q| q.io.id == io.id).expect("it waits").serial;
        run.ios.iter().map(serial).collect()
    }

    fn rename(&mut self, from: u64, to: u64) {
        self.queued.iter_mut().filter(|q| q.request == from).for_each(|q| q.request = to);
    }

    /// Whether they may be one command with so many bytes between them.
    fn fits(&self, bounds: Bounds, front: &Request, back: &Request, gap: u64) -> bool {
        let (a, b) = (front.ios[0], back.ios[0]);
        let between = back.start() as i64 - front.end() as i64;
        let alike = (a.op, a.kind, a.class) == (b.op, b.kind, b.class);
        let both = || front.ios.iter().chain(&back.ios);
        let gaps = both().zip(both().skip(1)).filter(|(x, y)| y.offset > x.end()).count();
        let limit = match interactive(a.class.index()) {
            true => self.s.aggregation_limit(),
            false => self.s.background_aggregation_limit(),
        };
        let (first, last) = (front.start(), back.end() - 1);
        let inside = bounds.boundary == 0 || first / bounds.boundary == last / bounds.boundary;
        alike
            && (0..=gap as i64).contains(&between)
            && back.end() - first <= bounds.max_bytes.min(limit)
            && both().count() + gaps <= bounds.max_segments.min(self.s.max_segments()) as usize
            && inside
    }
}
