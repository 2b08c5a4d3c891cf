// weft doctor: what this machine has, what it measures at, and what is missing.
#include <cstdlib>
#include <filesystem>

#include "command.h"
#include "rank_resources.h"
#include "weft/base/file.h"
#include "weft/base/machine.h"
#include "weft/comm/nccl/nccl_transport.h"
#include "weft/kernels/cpu/peak.h"
#include "weft/tensor/cuda/cuda_device.h"

namespace weft::app {
namespace {

struct DoctorCommand {
  Output output;
};

// Where a program is on PATH; empty when it is not.
std::string find_program(const std::string& name) {
  const char* path = std::getenv("PATH");
  const std::string folders = path ? path : "";
  for (size_t begin = 0; begin <= folders.size();) {
    const size_t end = std::min(folders.find(':', begin), folders.size());
    const std::string candidate = join_path(folders.substr(begin, end - begin), name);
    std::error_code error;
    if (std::filesystem::is_regular_file(candidate, error)) return candidate;
    begin = end + 1;
  }
  return "";
}

nlohmann::json to_json(const std::vector<CudaDevice>& devices) {
  nlohmann::json list = nlohmann::json::array();
  for (const CudaDevice& d : devices)
    list.push_back({{"name", d.name},
                    {"total_bytes", d.total_bytes},
                    {"free_bytes", d.free_bytes},
                    {"multiprocessors", d.num_multiprocessors},
                    {"compute_capability", d.compute_capability}});
  return list;
}

void doctor(const DoctorCommand& o) {
  const Machine m = describe_machine();
  RankResources all;
  const double f32 = cpu::measure_peak_flops(all.team, DType::f32),
               bf16 = cpu::measure_peak_flops(all.team, DType::bf16);
  const double bandwidth = cpu::measure_read_bandwidth(all.team);
  const std::string mpirun = find_program("mpirun");
  std::vector<std::string> missing;
  if (mpirun.empty()) missing.emplace_back("mpirun: training on several machines needs it; install openmpi-bin");
  std::string why_no_cuda;
  const std::vector<CudaDevice> devices = cuda_devices(&why_no_cuda);
  if (m.gpus.empty()) missing.emplace_back("GPU: none is visible to the NVIDIA driver; weft computes on the CPU");
  if (!why_no_cuda.empty()) missing.emplace_back("CUDA: " + why_no_cuda);
  if (devices.size() > 1 && !has_nccl())
    missing.emplace_back("NCCL: devices talk through host memory; install libnccl-dev and build again");
  if (!devices.empty() && !has_cudnn())
    missing.emplace_back(
        "cuDNN: attention is by slower kernels of our own; install cuDNN 9.10 or newer and build again");
  if (std::find(m.isa.begin(), m.isa.end(), "avx2") == m.isa.end())
    missing.emplace_back("AVX2: this processor lacks it; matrix products will be slow");

  o.output.json(
      {{"host", m.host},
       {"cpu", m.cpu},
       {"packages", m.packages},
       {"numa_nodes", m.numa_nodes},
       {"cores", m.cores},
       {"usable_threads", m.usable_threads},
       {"l1d_bytes", m.l1d_bytes},
       {"l2_bytes", m.l2_bytes},
       {"l3_bytes", m.l3_bytes},
       {"memory_bytes", m.memory_bytes},
       {"available_bytes", m.available_bytes},
       {"isa", m.isa},
       {"gpus", m.gpus},
       {"cuda", {{"built", has_cuda()}, {"nccl", has_nccl()}, {"cudnn", has_cudnn()}, {"devices", to_json(devices)}}},
       {"peak_f32_flops", f32},
       {"peak_bf16_flops", bf16},
       {"read_bytes_per_s", bandwidth},
       {"mpirun", mpirun},
       {"missing", missing}});
  if (o.output.is_json()) return;
  const auto line = [&](const char* what, const std::string& value) {
    o.output.text(fmt::format("{:<10} {}", what, value));
  };
  line("cpu", fmt::format("{}, {} cores in {} package(s), {} NUMA node(s); {} usable", m.cpu, m.cores, m.packages,
                          m.numa_nodes, m.usable_threads));
  line("isa", fmt::format("{}", fmt::join(m.isa, " ")));
  line("caches", fmt::format("L1d {}, L2 {}, L3 {}", human_bytes(uint64_t(m.l1d_bytes)),
                             human_bytes(uint64_t(m.l2_bytes)), human_bytes(uint64_t(m.l3_bytes))));
  line("memory", fmt::format("{}, {} available", human_bytes(uint64_t(m.memory_bytes)),
                             human_bytes(uint64_t(m.available_bytes))));
  line("measured", fmt::format("fp32 {:.0f} GFLOP/s, bf16 {:.0f} GFLOP/s, memory {:.1f} GB/s", f32 / 1e9, bf16 / 1e9,
                               bandwidth / 1e9));
  line("gpus", m.gpus.empty() ? "none" : fmt::format("{}", fmt::join(m.gpus, ", ")));
  for (const CudaDevice& d : devices)
    line("cuda", fmt::format("{}, compute capability {}.{}, {} multiprocessors, {}, {} free", d.name,
                             d.compute_capability / 10, d.compute_capability % 10, d.num_multiprocessors,
                             human_bytes(uint64_t(d.total_bytes)), human_bytes(uint64_t(d.free_bytes))));
  line("mpi", mpirun.empty() ? "none" : mpirun);
  for (const std::string& what : missing) line("missing", what);
}

}  // namespace

void add_doctor(CLI::App& program) {
  const auto o = std::make_shared<DoctorCommand>();
  CLI::App* c = program.add_subcommand("doctor", "What this machine has, what it measures at, and what is missing");
  o->output.add_option(*c);
  c->footer("Example: weft doctor --json");
  c->callback([o] { doctor(*o); });
}

}  // namespace weft::app
