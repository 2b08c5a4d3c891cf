// Machine: hwloc for the topology, the processor for its instruction sets, the driver's files for GPUs.
#include "weft/base/machine.h"

#include <fmt/format.h>
#include <hwloc.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <memory>
#include <thread>

namespace weft {
namespace {

// The value behind "KEY: value" in a file of such lines; empty when there is none.
std::string value_in(const std::string& path, const std::string& key) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with(key)) continue;
    const size_t colon = line.find(':');
    const size_t begin = colon == std::string::npos ? colon : line.find_first_not_of(" \t", colon + 1);
    return begin == std::string::npos ? "" : line.substr(begin);
  }
  return "";
}

int64_t kilobytes_in(const std::string& path, const std::string& key) {
  const std::string text = value_in(path, key);
  int64_t kib = 0;
  for (const char c : text) {
    if (c < '0' || c > '9') break;
    kib = kib * 10 + (c - '0');
  }
  return kib * 1024;
}

int64_t cache_bytes(hwloc_topology_t topology, hwloc_obj_type_t type) {
  const hwloc_obj_t cache = hwloc_get_obj_by_type(topology, type, 0);
  return cache ? int64_t(cache->attr->cache.size) : 0;
}

void read_topology(Machine& m) {
  hwloc_topology_t topology = nullptr;
  if (hwloc_topology_init(&topology) != 0) return;
  const std::unique_ptr<hwloc_topology, void (*)(hwloc_topology_t)> owner(topology, hwloc_topology_destroy);
  if (hwloc_topology_load(topology) != 0) return;
  const auto count = [&](hwloc_obj_type_t type) { return std::max(0, hwloc_get_nbobjs_by_type(topology, type)); };
  m.packages = count(HWLOC_OBJ_PACKAGE), m.numa_nodes = count(HWLOC_OBJ_NUMANODE);
  m.cores = count(HWLOC_OBJ_CORE);
  m.l1d_bytes = cache_bytes(topology, HWLOC_OBJ_L1CACHE);
  m.l2_bytes = cache_bytes(topology, HWLOC_OBJ_L2CACHE);
  m.l3_bytes = cache_bytes(topology, HWLOC_OBJ_L3CACHE);
}

std::vector<std::string> instruction_sets() {
  std::vector<std::string> names;
#if defined(__x86_64__)
  const std::string flags = fmt::format(" {} ", value_in("/proc/cpuinfo", "flags"));
  for (const char* name : {"avx2", "fma", "f16c", "avx512f", "avx512bw", "avx512_bf16", "avx512_fp16", "avx512_vnni",
                           "avx_vnni", "amx_tile", "amx_bf16", "amx_int8"})
    if (flags.find(std::string(" ") + name + " ") != std::string::npos) names.emplace_back(name);
#else
  names.emplace_back("neon");
#endif
  return names;
}

std::vector<std::string> gpu_names() {
  std::vector<std::string> names;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/driver/nvidia/gpus", error)) {
    const std::string model = value_in((entry.path() / "information").string(), "Model");
    names.push_back(model.empty() ? "NVIDIA GPU" : model);
  }
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace

Machine describe_machine() {
  Machine m;
  char host[256] = {};
  if (::gethostname(host, sizeof host - 1) == 0) m.host = host;
  m.cpu = value_in("/proc/cpuinfo", "model name");
  read_topology(m);
  m.usable_threads = usable_cores();
  m.memory_bytes = kilobytes_in("/proc/meminfo", "MemTotal");
  m.available_bytes = kilobytes_in("/proc/meminfo", "MemAvailable");
  m.isa = instruction_sets();
  m.gpus = gpu_names();
  return m;
}

int usable_cores() {
  cpu_set_t set;
  if (::sched_getaffinity(0, sizeof set, &set) == 0) return std::max(1, CPU_COUNT(&set));
  return std::clamp(int(std::thread::hardware_concurrency()), 1, CPU_SETSIZE);  // of more, as many as a set tells
}

}  // namespace weft
