// ForwardRanks: from --mesh to ranks.
#include "forward_ranks.h"

#include <algorithm>
#include <charconv>

#include "mesh_options.h"
#include "rank_resources.h"
#include "threads_option.h"
#include "weft/comm/mpi/mpi.h"
#include "weft/comm/run_world.h"
#include "weft/pretrained/held_blocks.h"
#include "weft/pretrained/peft.h"
#include "weft/train/launch.h"
#include "weft/train/recipe.h"

namespace weft::app {
namespace {

MeshConfig parse_mesh(const std::string& mesh, const std::string& device) {
  Toml toml;
  if (!device.empty()) toml.apply("mesh.device=" + device);
  MeshOptions::apply_spec(toml, mesh);
  MeshConfig config = read_mesh(toml);
  toml.reject_unknown();
  // Ranks along ep are ranks along dp that hold different experts.
  if (MeshShape& s = config.shape; s.shard == 1) s.shard = s.ep;
  return config;
}

MeshConfig mesh_of(const ForwardOptions& options) {
  return parse_mesh(options.mesh == "auto" ? "" : options.mesh, options.device);
}

// Calls body on every rank, where ranks run.
void run_mesh(const ForwardOptions& options, const MeshConfig& config,
              const std::function<void(Context& context, const Mesh& mesh, Communicator& job)>& body) {
  const int size = config.size(), ranks = launched_by_mpi() ? size * options.replicas : size;
  const int threads = options.threads > 0 ? std::max(1, options.threads / ranks) : threads_of_a_rank(ranks);
  run_world(ranks,
            [&](Communicator& job) {
              RankResources rank(threads, config.device, options.replica * size + job.rank());
              job.use_stream(rank.stream);
              std::unique_ptr<Communicator> part;
              if (ranks > size) part = job.split(job.rank() / size, job.rank(), "replica");
              const Mesh mesh(part ? *part : job, config.shape);
              body(rank.context, mesh, job);
            },
            {.timeout = std::chrono::seconds(config.timeout_s)});
}

// Whether half of what is free holds copies of `bytes` on every rank, which is more than any mesh makes.
bool has_room_for_copies(int64_t bytes, const MeshConfig& config) {
  if (config.device != Device::cpu || bytes == 0) return false;
  const int ranks = launched_by_mpi() ? mpi_ranks_here() : config.size();
  return bytes <= available_bytes(config.device, ranks) / 2 / ranks;
}

}  // namespace

void ForwardOptions::add_to(CLI::App& command) {
  command
      .add_option(
          "MODEL", model,
          "A Hugging Face folder, a .gguf file, a weft checkpoint or a run folder; or random:PRESET, a preset "
          "with random weights")
      ->required();
  command.add_option("--adapter", adapter, "A PEFT folder: adapters to use beside the model");
  command.add_option("--mesh", mesh, "Axes and sizes, as in tp=2,pp=2,ep=2; weft serve takes auto too");
  command.add_option("--dtype", dtype, "fp32, bf16, fp16, or auto: as the model's files have it")
      ->capture_default_str();
  command
      .add_option(
          "--quantize", quantize,
          fmt::format("Weights in blocks: auto, those that the model has in blocks; one of {}, others rounded "
                      "to it too; none, all in --dtype",
                      fmt::join(rounded_type_names(), ", ")))
      ->capture_default_str();
  command.add_flag(
      "--in-place", in_place,
      "Leave weights that files have in blocks where they are mapped, shared with other processes; else they "
      "are copied to huge pages, which are read faster, where half of the free memory holds them");
  command.add_option("--device", device, "Of every rank: cpu or cuda");
  add_threads(command, threads, "Cores to use, over all ranks; 0: all");
}

int ranks_of(const ForwardOptions& options) { return mesh_of(options).size(); }

int replicas_of(const ForwardOptions& options) {
  const MeshShape shape = mesh_of(options).shape;
  return shape.ep > 0 && shape.dp() % shape.ep == 0 ? shape.dp() / shape.ep : 1;
}

DType dtype_of(const ForwardOptions& options, const ModelSource& source) {
  if (options.dtype != "auto") return parse_dtype(options.dtype);
  DType found = DType::f32;
  for (const ParamNames& names : source.names()) {
    if (source.blocks_of(names.param)) return DType::f32;
    const DType stored = source.dtype_of(names.param).value_or(DType::f32);
    if (found == DType::f32 && (stored == DType::bf16 || stored == DType::f16)) found = stored;
  }
  return found;
}

Device device_of(const ForwardOptions& options) { return mesh_of(options).device; }

void run_forward(const ForwardOptions& options, const ForwardBody& body, const ForwardPlan& plan) {
  MeshConfig mesh_config = plan ? mesh_of(options) : parse_mesh(options.mesh, options.device);
  if (!plan && mesh_config.shape.cp > 1)
    throw UsageError("--mesh cp={}: tokens are spread over ranks by weft serve and weft train: cut by tp, pp and ep",
                     mesh_config.shape.cp);
  if (options.replicas > 1) mesh_config.shape.replicate = 1, mesh_config.shape.shard = mesh_config.shape.ep;
  std::unique_ptr<ModelSource> source = open_model(options.model, Checkpoint::Check::all_bytes, options.mtp);
  if (!options.adapter.empty()) source = open_adapted(std::move(source), options.adapter);
  if (options.writes_texts)  // with an adapter whose head scores texts it does not
    require_writing(source->config(), options.adapter.empty() ? options.model : options.adapter);
  const DType dtype = dtype_of(options, *source);
  FarLayers far;
  if (plan) plan(*source, mesh_config.shape, far);
  BlockChoice blocks = parse_block_choice(options.quantize);
  blocks.copies_mapped = !options.in_place && far.count == 0 &&
                         has_room_for_copies(mapped_block_bytes(*source, blocks) * options.replicas, mesh_config);
  run_mesh(options, mesh_config, [&](Context& context, const Mesh& mesh, Communicator& job) {
    ForwardModel model(context, mesh, *source, dtype, blocks, far);
    body(model, *source, job);
  });
}

void run_encoder(const ForwardOptions& options, const EncoderBody& body, DType stored) {
  MeshConfig mesh_config = parse_mesh(options.mesh, options.device);
  if (!options.adapter.empty()) throw UsageError("--adapter: this kind of model runs without adapters: leave it out");
  if (options.replicas > 1) mesh_config.shape.replicate = mesh_config.shape.shard = 1;
  const DType dtype = options.dtype == "auto" ? stored : parse_dtype(options.dtype);
  run_mesh(options, mesh_config, [&](Context& context, const Mesh& mesh, Communicator& job) {
    body(context, {dtype, &mesh}, job);
  });
}

std::vector<int32_t> parse_ids(const std::string& text, const char* option, int64_t vocab) {
  constexpr std::string_view kBetween = ", \t\r\n[]";
  std::vector<int32_t> ids;
  // Commas stand alone between two tokens, whatever else does.
  const auto check_commas = [&](size_t from, size_t to, int64_t most) {
    if (std::ranges::count(std::string_view(text).substr(from, to - from), ',') > most)
      throw UsageError("{}: a comma has no token beside it: write numbers from 0 to {}, as in 1,2,3", option,
                       vocab - 1);
  };
  size_t at = text.find_first_not_of(kBetween);
  check_commas(0, std::min(at, text.size()), 0);
  while (at != std::string::npos) {
    const size_t end = std::min(text.find_first_of(kBetween, at), text.size());
    int32_t id = -1;
    const auto [stop, error] = std::from_chars(text.data() + at, text.data() + end, id);
    if (error != std::errc() || stop != text.data() + end || id < 0 || id >= vocab)
      throw UsageError("{}: {} is no token: write numbers from 0 to {}, as in 1,2,3", option,
                       text.substr(at, end - at), vocab - 1);
    ids.push_back(id);
    at = text.find_first_not_of(kBetween, end);
    check_commas(end, std::min(at, text.size()), at == std::string::npos ? 0 : 1);
  }
  return ids;
}

}  // namespace weft::app
