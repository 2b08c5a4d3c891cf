// Hardware: from TOML to figures in bytes, seconds and FLOPs.
#include "weft/plan/hardware.h"

#include <algorithm>
#include <cmath>

#include "weft/base/error.h"
#include "weft/base/nearest.h"
#include "weft/base/units.h"
#include "weft/plan/catalogue.h"

namespace weft::plan {
namespace {

constexpr std::array<std::string_view, kNumMatmulTypes> kTypeNames = {"fp32", "bf16", "fp16", "fp8"};
constexpr double kGiga = 1e9, kTera = 1e12, kMicro = 1e-6;

// A figure that must be there.
double figure(Toml& toml, const std::string& key, double min, double max) {
  toml.require<double>(key);
  return toml.number(key, 0, min, max);
}

Link read_link(Toml& toml, const std::string& section) {
  Link link;
  link.bytes_per_s = kGiga * figure(toml, section + ".gb_s", 1e-3, 1e5);
  link.reached = figure(toml, section + ".reached", 0.01, 1.5);
  link.latency_s = kMicro * figure(toml, section + ".latency_us", 0, 1e6);
  link.half_bytes = kMebi * figure(toml, section + ".half_mib", 0, 1e4);
  return link;
}

std::vector<Sharing> read_sharing(Toml& toml) {
  const auto ranks = toml.require<std::vector<int64_t>>("sharing.ranks");
  if (ranks.empty() || ranks[0] != 1) toml.reject("sharing.ranks", "begin with 1, as in [1, 2, 4]");
  std::vector<Sharing> all;
  for (const int64_t r : ranks) {
    if (r < 1 || r > (1 << 16) || (!all.empty() && r <= all.back().ranks))
      toml.reject("sharing.ranks", "write numbers of ranks that grow, as in [1, 2, 4]");
    all.push_back({.ranks = int(r)});
  }
  const auto column = [&](const std::string& key, double Sharing::*member, double unit, bool may_be_zero) {
    const auto values = toml.require<std::vector<double>>(key);
    if (values.size() != all.size())
      toml.reject(key, fmt::format("write {} figures, one for each of ranks", all.size()));
    for (size_t i = 0; i < values.size(); ++i) {
      if (!(values[i] >= 0 && values[i] < 1e9) || (values[i] == 0 && !may_be_zero))
        toml.reject(key, "write figures above 0");
      all[i].*member = unit * values[i];
    }
  };
  column("sharing.speed", &Sharing::speed, 1, false);
  column("sharing.alone", &Sharing::alone, 1, false);
  column("sharing.memory", &Sharing::memory, 1, false);
  column("sharing.launch_us", &Sharing::launch_s, kMicro, true);
  column("sharing.gb_s", &Sharing::link_bytes_per_s, kGiga, false);
  column("sharing.latency_us", &Sharing::link_latency_s, kMicro, true);
  return all;
}

}  // namespace

// Between two measured numbers of ranks: along the logarithm. Beyond the last, ranks take turns.
Sharing Hardware::sharing_of(int ranks) const {
  size_t above = 0;
  while (above < sharing.size() && sharing[above].ranks < ranks) ++above;
  const Sharing& hi = sharing[std::min(above, sharing.size() - 1)];
  const Sharing& lo = hi.ranks > ranks ? sharing[above - 1] : hi;
  const double part =
      lo.ranks == hi.ranks ? 0 : std::log(double(ranks) / lo.ranks) / std::log(double(hi.ranks) / lo.ranks);
  const double turns = std::max(1.0, double(ranks) / hi.ranks);
  const auto at = [&](double Sharing::*member) { return std::lerp(lo.*member, hi.*member, part); };
  return {.ranks = ranks,
          .speed = at(&Sharing::speed) / turns,
          .memory = at(&Sharing::memory) / turns,
          .alone = at(&Sharing::alone),
          .launch_s = at(&Sharing::launch_s) * turns,
          .link_bytes_per_s = at(&Sharing::link_bytes_per_s) / turns,
          .link_latency_s = at(&Sharing::link_latency_s) * turns};
}

Hardware Hardware::of_ranks(int ranks) const {
  if (!is_shared()) return *this;
  const Sharing s = sharing_of(ranks);
  Hardware one = *this;
  one.sharing = {};
  one.memory_bytes /= ranks, one.reserved_bytes /= ranks;
  one.memory_bytes_per_s *= s.memory;
  one.sustained *= s.speed;
  one.attention_forward *= s.speed, one.attention_backward *= s.speed;
  for (auto& [kernel, rate] : one.kernel_bytes_per_s) rate *= s.speed;
  one.launch_s = s.launch_s;
  one.node.bytes_per_s = s.link_bytes_per_s, one.node.latency_s = s.link_latency_s;
  return one;
}

// The machine does as much as when all ranks run, but no rank more than it does alone.
double Hardware::relief(int ranks, int active) const {
  if (!is_shared() || active >= ranks) return 1;
  const Sharing s = sharing_of(ranks);
  return std::max(1.0, std::min(s.alone / s.speed, double(ranks) / std::max(active, 1)));
}

std::string_view name_of(MatmulType type) { return kTypeNames[size_t(type)]; }

Hardware read_hardware(Toml& toml) {
  Hardware h;
  h.name = toml.require<std::string>("name");
  h.description = toml.get<std::string>("description", "");
  h.memory_bytes = kGibi * figure(toml, "memory.gib", 0.1, 1e6);
  h.reserved_bytes = kGibi * figure(toml, "memory.reserved_gib", 0, h.memory_bytes / kGibi);
  h.memory_bytes_per_s = kGiga * figure(toml, "memory.gb_s", 1, 1e6);
  h.memory_reached = figure(toml, "memory.reached", 0.01, 1);
  h.launch_s = kMicro * figure(toml, "device.launch_us", 0, 1e4);
  h.cores = toml.require<int>("device.cores");
  if (h.cores < 1) toml.reject("device.cores", "write how many tiles of a product are computed at a time");
  const auto tile = toml.require<std::vector<int64_t>>("matmul.tile");
  constexpr int64_t kMostTile = 1 << 16;
  const bool is_tile =
      tile.size() == 2 && std::ranges::all_of(tile, [](int64_t n) { return n >= 1 && n <= kMostTile; });
  if (!is_tile) toml.reject("matmul.tile", fmt::format("write two sizes from 1 to {}, as in [128, 128]", kMostTile));
  h.tile_m = int(tile[0]), h.tile_n = int(tile[1]);
  h.sustained = figure(toml, "matmul.sustained", 0.01, 1);
  h.half_depth = figure(toml, "matmul.half_depth", 0, 1e5);
  for (int i = 0; i < kNumMatmulTypes; ++i) {
    const std::string key = fmt::format("matmul.{}", kTypeNames[size_t(i)]);
    if (!toml.has(key)) continue;
    const auto both = toml.require<std::vector<double>>(key);
    if (both.size() != 2 || both[0] <= 0 || both[1] <= 0 || both[1] > 1.5)
      toml.reject(key, "write the peak in TFLOP/s and the share of it that large products reach, as in [989, 0.8]");
    h.peak_flops[size_t(i)] = kTera * both[0], h.reached[size_t(i)] = both[1];
  }
  if (h.peak(MatmulType::bf16) == 0 && h.peak(MatmulType::fp16) == 0 && h.peak(MatmulType::fp32) == 0)
    toml.reject("name", "it multiplies nothing: write matmul.bf16, matmul.fp16 or matmul.fp32");
  h.attention_forward = figure(toml, "attention.forward", 0.01, 1);
  h.attention_backward = figure(toml, "attention.backward", 0.01, 1);
  h.devices_per_node = int(toml.integer("node.devices", 1, 1, 1 << 12));
  if (toml.has("node.host_gib")) h.host_bytes = kGibi * figure(toml, "node.host_gib", 0.1, 1e6);
  h.node = read_link(toml, "node");
  h.network = read_link(toml, "network");
  if (toml.has_section("kernels")) {
    const auto names = toml.require<std::vector<std::string>>("kernels.names");
    const auto rates = toml.require<std::vector<double>>("kernels.gb_s");
    if (names.size() != rates.size()) toml.reject("kernels.gb_s", "write a figure for each of kernels.names");
    for (size_t i = 0; i < names.size(); ++i) {
      if (!(rates[i] > 0 && rates[i] < 1e6)) toml.reject("kernels.gb_s", "write figures above 0");
      h.kernel_bytes_per_s[names[i]] = kGiga * rates[i];
    }
  }
  if (toml.has_section("sharing")) h.sharing = read_sharing(toml);
  toml.reject_unknown();
  return h;
}

std::vector<std::string> hardware_names() {
  std::vector<std::string> names;
  for (const CatalogueEntry& e : catalogue()) names.emplace_back(e.name);
  return names;
}

std::string_view hardware_text(std::string_view name) {
  for (const CatalogueEntry& e : catalogue())
    if (e.name == name) return e.text;
  const std::vector<std::string> names = hardware_names();
  throw UsageError("the hardware \"{}\" is not known: there are {}, or write a .toml file{}", name,
                   fmt::join(names, ", "), did_you_mean(name, names));
}

Hardware find_hardware(const std::string& name) {
  Toml toml = name.ends_with(".toml") ? Toml::load(name) : Toml::parse(hardware_text(name), name);
  return read_hardware(toml);
}

Cluster parse_cluster(const std::string& spec) {
  size_t digits = 0;
  while (digits < spec.size() && spec[digits] >= '0' && spec[digits] <= '9') ++digits;
  size_t at = digits;
  while (at < spec.size() && spec[at] == ' ') ++at;
  const bool has_count = digits > 0 && digits <= 7 && at < spec.size() && spec[at] == 'x';
  if (has_count) {
    ++at;
    while (at < spec.size() && spec[at] == ' ') ++at;
  }
  Cluster cluster;
  cluster.hardware = find_hardware(has_count ? spec.substr(at) : spec);
  cluster.num_devices = has_count ? std::stoi(spec.substr(0, digits)) : cluster.hardware.devices_per_node;
  if (cluster.num_devices < 1)
    throw UsageError("--cluster \"{}\": write how many devices of which hardware, as in 64xh100-sxm", spec);
  return cluster;
}

}  // namespace weft::plan
