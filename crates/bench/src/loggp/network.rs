//! The parameters of LogGP (Alexandrov, Ionescu, Schauser, Scheiman: LogGP, SPAA 1995), and where the defaults are from.
//!
//! # Defaults: InfiniBand, probably QDR
//! Measured with netgauge (Hoefler, Mehlan, Lumsdaine, Rehm: Netgauge, HPCC 2007) on Tukey at Argonne, MVAPICH over InfiniBand, and
//! published with the CODES simulator: repository `codes-org/codes`, file `tests/ng-mpi-tukey.dat` as of commit `074fb9f1`, described
//! in its `README.loggp.txt`. The row of 64 bytes, about what a request here has:
//! `PRTT(1,0,64) = 11.719927 us`, `o_s = 1.136792`, `o_r = 1.170096`, `g = 0.991259`, `G = 0.002213`. Its `G` is a fit over the first few
//! small sizes; here is that of 4 KiB to 8 MiB, about 0.0005 us a byte, 2 GB/s.
//! `L` there is half a round trip, overheads included; LogGP's own is what is left without them:
//! `11.719927 / 2 - o_s - o_r = 3.553 us`.
//!
//! Later commits have another measurement of the same machine, `tests/conf/ng-mpi-tukey.dat` (commit `a611dd16`), a few percent
//! away: `11.082663`, `1.240573`, `1.145113`, `1.086758`. A test in `ring` compares the trees for both.
//!
//! The file says InfiniBand, not which rate: 2 GB/s agrees with QDR, but would with DDR too. The paper's machine (Catalyst,
//! InfiniBand QDR by QLogic) has no published set that we know of. What decides about trees is not the speed but the ratio of a
//! message's whole time to the gap between two of them, `5.86 / 1.17 = 5.0` in the first measurement, 4.8 in the later one.

/// A network of equal servers. Times in nanoseconds, `G` in picoseconds a byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::Args)]
pub struct Network {
    /// LogGP's L: nanoseconds on the wire
    #[arg(long = "net-latency", default_value_t = 3553, value_name = "NS")]
    pub latency: u64,
    /// LogGP's o of sending: nanoseconds of processor time
    #[arg(long = "net-send", default_value_t = 1137, value_name = "NS")]
    pub send: u64,
    /// LogGP's o of receiving: nanoseconds of processor time
    #[arg(long = "net-receive", default_value_t = 1170, value_name = "NS")]
    pub receive: u64,
    /// LogGP's g: nanoseconds between two messages of one server
    #[arg(long = "net-gap", default_value_t = 991, value_name = "NS")]
    pub gap: u64,
    /// LogGP's G: picoseconds a byte
    #[arg(long = "net-byte", default_value_t = 500, value_name = "PS")]
    pub byte: u64,
    /// Bytes of a message
    #[arg(long = "net-size", default_value_t = 64, value_name = "BYTES", value_parser = clap::value_parser!(u64).range(1..))]
    pub size: u64,
    /// Nanoseconds of processor time to combine two requests, or to carry out one
    #[arg(long = "net-work", default_value_t = 0, value_name = "NS")]
    pub work: u64,
}

impl Network {
    /// The time of all bytes of a message but the first.
    pub fn bytes(&self) -> u64 {
        (self.size - 1) * self.byte / 1000
    }

    /// From the start of sending to the end of receiving.
    pub fn hop(&self) -> u64 {
        self.send + self.bytes() + self.latency + self.receive
    }

    /// Between the starts of two sends of one server.
    pub fn between_sends(&self) -> u64 {
        self.send.max(self.gap + self.bytes())
    }

    /// Between the starts of two receptions of one server that combines them.
    pub fn between_receptions(&self) -> u64 {
        (self.receive + self.work).max(self.gap + self.bytes())
    }
}

/// A server's processor and network card: when each is free.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct SimulatedServer {
    pub processor: u64,
    sending: u64,
    receiving: u64,
}

impl SimulatedServer {
    /// Sends as soon as it can from `now` on; when the message is at its receiver's card.
    pub fn send(&mut self, net: &Network, now: u64) -> u64 {
        let start = now.max(self.processor).max(self.sending);
        self.processor = start + net.send;
        self.sending = start + net.gap + net.bytes();
        start + net.send + net.bytes() + net.latency
    }

    /// Receives what is at its card from `arrival` on, and does `work` on it; when its processor is done.
    pub fn receive(&mut self, net: &Network, arrival: u64, work: u64) -> u64 {
        let start = arrival.max(self.processor).max(self.receiving);
        self.processor = start + net.receive + work;
        self.receiving = start + net.gap + net.bytes();
        self.processor
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_round_trip_is_what_was_measured() {
        let measured = 11_719.927 / 2.0;
        let one = Network {
            byte: 0,
            ..Network::default()
        };
        assert!((one.hop() as f64 - measured).abs() < 1.0, "{}", one.hop());
    }
}
