// Hardware: a machine of a cluster as figures: what its devices compute and hold, how fast they reach each other.
#pragma once
#include <array>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "weft/base/toml.h"

namespace weft::plan {

// What the two operands of a matrix product are multiplied as.
enum class MatmulType : uint8_t { fp32, bf16, fp16, fp8 };
inline constexpr int kNumMatmulTypes = 4;
std::string_view name_of(MatmulType type);

// Bytes are counted in one direction. Shares are of the figure that the datasheet gives.
struct Link {
  double bytes_per_s = 0;  // of one device, to all others together
  double reached = 1;      // share of it that large messages see: the "bus bandwidth" of collectives
  double latency_s = 0;    // of one step of a collective
  double half_bytes = 0;   // a message of this size sees half of what large ones see
};

// Where devices are ranks on the cores of one machine: what one of them has while so many run.
struct Sharing {
  int ranks = 1;
  // Beside one rank that has all: of products, attention and named kernels; of bandwidth.
  double speed = 1, memory = 1;
  double alone = 1;  // speed of one of them while the others wait
  double launch_s = 0;
  double link_bytes_per_s = 0, link_latency_s = 0;  // in Link's sense
};

struct Hardware {
  std::string name;
  std::string description;
  double memory_bytes = 0;
  double reserved_bytes = 0;  // of it, what drivers, libraries and fragmentation take
  double memory_bytes_per_s = 0;
  double memory_reached = 1;   // share that kernels bound by memory see
  double launch_s = 0;         // from the end of one kernel to the beginning of the next
  int cores = 1;               // streaming multiprocessors: as many tiles of a product at a time
  int tile_m = 1, tile_n = 1;  // of a matrix product's result
  double half_depth = 0;       // a product of this many terms runs at half speed
  std::array<double, kNumMatmulTypes> peak_flops{};          // of a device; 0: it has none
  std::array<double, kNumMatmulTypes> reached{};             // share that large products see
  double sustained = 1;                                      // of that, what is left in whole steps
  double attention_forward = 0.4, attention_backward = 0.3;  // share of the 16-bit peak, FLOPs of visible pairs
  int devices_per_node = 1;
  double host_bytes = 0;  // main memory of a node, for what its devices offload; 0: not said
  Link node, network;
  // What named kernels move in a second, where computing bounds them: on CPUs, most. Others: the memory's bandwidth.
  std::map<std::string, double, std::less<>> kernel_bytes_per_s;
  std::vector<Sharing> sharing;  // by number of ranks, the first is 1; empty: every device has its own

  bool is_shared() const { return !sharing.empty(); }
  // One of so many ranks of one machine, as a device of its own. The same where nothing is shared.
  Hardware of_ranks(int ranks) const;
  // How many times as fast kernels of one of so many ranks run while `active` of them do, beside while all do.
  double relief(int ranks, int active) const;

  double peak(MatmulType type) const { return peak_flops[size_t(type)]; }

 private:
  Sharing sharing_of(int ranks) const;
};

// Strict: an unknown key, a missing or an impossible figure is a UsageError that names file, line and key.
Hardware read_hardware(Toml& toml);

// What read_hardware reads back, of hardware that was measured.
std::string hardware_toml(const Hardware& hardware);

// The catalogue that the program carries.
std::vector<std::string> hardware_names();
std::string_view hardware_text(std::string_view name);  // as TOML with sources, to copy and change; UsageError
// A name of the catalogue, or a TOML file (which ends with .toml).
Hardware find_hardware(const std::string& name_or_path);

// A cluster: so many nodes of one kind of machine.
struct Cluster {
  Hardware hardware;
  int num_devices = 1;
};
// "128 x h100-sxm", "128xh100-sxm", "h100-sxm" (one node), or "16xmachine.toml". Throws UsageError.
Cluster parse_cluster(const std::string& spec);

}  // namespace weft::plan
