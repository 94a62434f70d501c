//! What the rooms that serve requests know of the members: their media, whether they can be read, the rules of their
//! queues.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::ops::{Index, IndexMut};

use super::Engine;
use crate::queue::DeviceQueue;
use crate::queue::config::Config;
use crate::read_policy::DeviceView;
use crate::request::{Event, Output};
use crate::units::DeviceId;

/// Queues by the ids of their members. An id without a member has none: ids off a disk may be high, and a queue with its
/// histograms is large.
#[derive(Clone, Default)]
pub(super) struct Queues(Vec<Option<Box<DeviceQueue>>>);

impl Queues {
    pub(super) fn get(&self, id: DeviceId) -> Option<&DeviceQueue> {
        self.0.get(id.index())?.as_deref()
    }

    fn get_or_make(&mut self, id: DeviceId) -> &mut DeviceQueue {
        if self.0.len() <= id.index() {
            self.0.resize_with(id.index() + 1, || None);
        }
        self.0[id.index()].get_or_insert_with(|| Box::new(DeviceQueue::new(Config::default())))
    }

    fn get_mut(&mut self, id: DeviceId) -> Option<&mut DeviceQueue> {
        self.0.get_mut(id.index())?.as_deref_mut()
    }
}

impl Index<usize> for Queues {
    type Output = DeviceQueue;
    fn index(&self, id: usize) -> &DeviceQueue {
        self.0[id].as_deref().expect("commands go to members")
    }
}

impl IndexMut<usize> for Queues {
    fn index_mut(&mut self, id: usize) -> &mut DeviceQueue {
        self.0[id].as_deref_mut().expect("commands go to members")
    }
}

impl Engine {
    /// Tells the read policy and the queues what the members are.
    pub(super) fn post_views(&mut self) {
        self.pool.members_changed();
        self.note_room();
        self.note_members();
        self.absent = self.pool.devices().filter(|d| !d.state.is_used()).count();
        let ids = self.pool.device_ids_end();
        while self.views.len() < ids {
            self.views.push(DeviceView::new(DeviceId(self.views.len() as u32), false));
        }
        for device in self.pool.devices() {
            let view = &mut self.views[device.id.index()];
            view.rotational = device.rotational;
            view.read_preferred = device.read_preferred;
            view.state_readable = device.state.is_used();
            let queue = self.queues.get_or_make(device.id);
            // Checked when it was set; words off a disk that another version wrote may still mean nothing here.
            let (config, error) = match device.queue_config(&self.pool.properties.queue) {
                Ok(config) => (config, None),
                Err(error) => (Config::of_medium(device.rotational, device.class.name()), Some(error)),
            };
            let is_news = error.is_some() && !queue.is_on_defaults;
            queue.is_on_defaults = error.is_some();
            if let Some(error) = error.filter(|_| is_news) {
                self.outputs.push_back(Output::Event(Event::QueueOnDefaults { device: device.id, error }));
            }
            queue.configure(self.now, config);
            if !core::mem::replace(&mut queue.is_touched, true) {
                self.touched.push(device.id);
            }
        }
    }

    /// Tells the queues how urgent asynchronous writes are.
    pub(super) fn post_dirty(&mut self) {
        let dirty = self.dirty();
        if self.dirty == dirty {
            return;
        }
        self.dirty = dirty;
        for id in (0..self.pool.device_ids_end() as u32).map(DeviceId) {
            let Some(queue) = self.queues.get_mut(id) else { continue };
            queue.set_dirty(self.now, dirty);
            self.touch(id);
        }
    }
}

#[cfg(test)]
mod tests {
    use alloc::string::{String, ToString};
    use alloc::vec::Vec;
    use alloc::{format, vec};

    use super::*;
    use crate::control::Command;
    use crate::meta::assembly::{Assembly, Opened, Step};
    use crate::meta::format::{self, NewDevice, NewPool};
    use crate::meta::superblock::{SLOTS, SUPERBLOCK_SIZE, newest};
    use crate::queue::config::Source;
    use crate::request::Input;
    use crate::units::{Instant, MIB, Uuid};
    use crate::{DeviceClass, Profile};

    const BOOT: Uuid = Uuid([1; 16]);

    fn one_disk() -> NewPool {
        let device = NewDevice {
            uuid: Uuid([2; 16]),
            path: "disk".into(),
            size: 64 * MIB,
            class: DeviceClass::parse("hdd").expect("a class"),
            rotational: true,
            tiers: None,
            hint: Default::default(),
        };
        let (name, uuid) = ("tank".into(), Uuid([3; 16]));
        let (data, metadata) = (Profile::Single, Profile::Single);
        NewPool { name, uuid, data, metadata, devices: vec![device], properties: vec![] }
    }

    /// A pool of one disk, as it is read back.
    fn opened() -> Opened {
        let new = one_disk();
        let plan = format::plan(&new).expect("a pool");
        let mut disk = vec![0; new.devices[0].size as usize];
        for place in plan.pages.iter().chain(&plan.superblocks) {
            disk[place.offset as usize..][..place.bytes.len()].copy_from_slice(&place.bytes);
        }
        let read = |at: u64, len: u64| disk[at as usize..][..len as usize].to_vec();
        let slots = SLOTS.map(|at| read(at, SUPERBLOCK_SIZE));
        let Ok(superblock) = newest([&slots[0], &slots[1]]) else { panic!("just made") };
        let mut assembly = Assembly::new(vec![superblock], BOOT).expect("one disk is all");
        loop {
            match assembly.step() {
                Step::Ready(opened) => return *opened,
                Step::Read(reads) => reads.into_iter().for_each(|r| assembly.supply(r, Ok(read(r.offset, r.len)))),
                Step::Failed(why) => panic!("{why}"),
            }
        }
    }

    fn told(engine: &mut Engine) -> Vec<String> {
        let mut told = Vec::new();
        loop {
            match engine.poll(Instant(0)) {
                Output::Idle { .. } => return told,
                Output::Event(Event::QueueOnDefaults { device, error }) => told.push(format!("{device}: {error}")),
                _ => {}
            }
        }
    }

    #[test]
    fn settings_that_mean_nothing_here_leave_a_disk_the_defaults_of_a_disk() {
        for (name, value) in [("scheduler", "cfq"), ("sync_read_min_active", "60"), ("budget_wait", "a while")] {
            let mut opened = opened();
            opened.pool.properties.queue.insert(name.to_string(), value.to_string());
            let mut engine = Engine::new(opened, Instant(0), BOOT, Uuid([4; 16]));
            let events = told(&mut engine);
            assert!(matches!(events.as_slice(), [one] if one.starts_with("1: ") && one.contains(name)), "{events:?}");
            let settings = engine.report().devices[0].queue.settings.clone();
            let of = |name: &str| settings.iter().find(|(n, ..)| *n == name).map(|(_, value, _)| value.as_str());
            assert_eq!((of("sync_read_max_active"), of("budget_wait")), (Some("32"), Some("auto")), "a disk's");
            assert!(settings.iter().all(|(.., source)| *source == Source::Default), "nobody set what is in force");
            // Said once, not at every look at the members; and again only when it was well in between.
            let set = |value: &str| Command::Set { name: name.into(), value: value.into() };
            engine.handle(
                Instant(0),
                Input::Control { tag: 1, command: Command::Set { name: "read_policy".into(), value: "pid".into() } },
            );
            assert_eq!(told(&mut engine), Vec::<String>::new());
            engine.handle(Instant(0), Input::Control { tag: 2, command: set("") });
            assert_eq!(told(&mut engine), Vec::<String>::new());
            assert!(!engine.queues[1].is_on_defaults);
        }
    }

    #[test]
    fn a_pool_is_not_made_with_settings_that_no_member_can_have() {
        let with = |value: &str| {
            let properties = vec![("sync_read_min_active".to_string(), value.to_string())];
            format::plan(&NewPool { properties, ..one_disk() }).map(|_| ())
        };
        assert_eq!(with("32"), Ok(()));
        let error = with("60").expect_err("a disk has 32 at most");
        assert!(error.message.contains("device 1: sync_read_min_active 60 is above"), "{error:?}");
    }
}
