// A table of meshes in which every pair of features occurs that can occur together, each mesh equal to one rank.
#include <fstream>
#include <sstream>

#include "support/covering_array.h"
#include "train/mesh_cases.h"

namespace weft {
namespace {

struct Level {
  const char* name;
  std::function<void(MeshCase&)> apply;
};
struct Factor {
  const char* name;
  std::vector<Level> levels;
};

template <class T, class Set>
std::vector<Level> levels(std::initializer_list<std::pair<const char*, T>> named, Set set) {
  std::vector<Level> all;
  for (const auto& [name, value] : named) all.push_back({name, [value, set](MeshCase& c) { set(c, value); }});
  return all;
}

const std::vector<Factor>& factors() {
  using What = RecomputePolicy::What;
  static const std::vector<Factor> all = {
      {"model",
       {{"llama", [](MeshCase&) {}},
        {"gpt2 with tied embeddings", [](MeshCase& c) { c.family = "gpt2", c.tie = true; }},
        {"llama with 6 experts", [](MeshCase& c) { c.experts = 6; }}}},
      {"mtp", levels<bool>({{"off", false}, {"on", true}}, [](MeshCase& c, bool v) { c.mtp = v; })},
      {"ep", levels<int>({{"1", 1}, {"2", 2}, {"4", 4}}, [](MeshCase& c, int v) { c.shape.ep = v; })},
      {"dp", levels<int>({{"1", 1}, {"2", 2}, {"4", 4}}, [](MeshCase& c, int v) { c.shape.shard = v; })},
      {"hsdp", levels<int>({{"off", 1}, {"2", 2}}, [](MeshCase& c, int v) { c.shape.replicate = v; })},
      {"zero",
       levels<Zero>({{"0", Zero::none}, {"1", Zero::optimizer}, {"2", Zero::gradients}, {"3", Zero::parameters}},
                    [](MeshCase& c, Zero v) { c.zero = v; })},
      {"tp", levels<int>({{"1", 1}, {"2", 2}, {"3", 3}}, [](MeshCase& c, int v) { c.shape.tp = v; })},
      {"sp", levels<bool>({{"off", false}, {"on", true}}, [](MeshCase& c, bool v) { c.sequence_parallel = v; })},
      {"pp", levels<int>({{"1", 1}, {"2", 2}, {"4", 4}}, [](MeshCase& c, int v) { c.shape.pp = v; })},
      {"schedule", levels<ScheduleKind>({{"1f1b", ScheduleKind::one_f_one_b},
                                         {"gpipe", ScheduleKind::gpipe},
                                         {"interleaved", ScheduleKind::interleaved},
                                         {"zb-h1", ScheduleKind::zb_h1},
                                         {"zbv", ScheduleKind::zbv},
                                         {"dualpipe-v", ScheduleKind::dualpipe_v}},
                                        [](MeshCase& c, ScheduleKind v) { c.schedule = v; })},
      {"cp", levels<int>({{"1", 1}, {"2", 2}, {"4", 4}}, [](MeshCase& c, int v) { c.shape.cp = v; })},
      {"cp mode",
       levels<ContextMode>(
           {{"ring", ContextMode::ring}, {"ulysses", ContextMode::ulysses}, {"allgather", ContextMode::allgather}},
           [](MeshCase& c, ContextMode v) { c.cp_mode = v; })},
      {"recompute", levels<RecomputePolicy>({{"none", {}},
                                             {"attention", {What::attention}},
                                             {"mlp", {What::mlp}},
                                             {"block", {What::block}},
                                             {"every:2", {What::block, 2}}},
                                            [](MeshCase& c, RecomputePolicy v) { c.recompute = v; })},
      {"offload",
       {{"none", [](MeshCase&) {}},
        {"optimizer to host", [](MeshCase& c) { c.offload_optimizer = OffloadTo::host; }},
        {"optimizer to disk", [](MeshCase& c) { c.offload_optimizer = OffloadTo::disk; }},
        {"parameters to host", [](MeshCase& c) { c.offload_parameters = OffloadTo::host; }},
        {"activations to disk", [](MeshCase& c) { c.offload_activations = OffloadTo::disk; }}}},
      {"precision",
       {{"fp32", [](MeshCase&) {}},
        {"bf16", [](MeshCase& c) { c.precision = Precision::bf16; }},
        {"bf16 and its gradients",
         [](MeshCase& c) { c.precision = Precision::bf16, c.gradients = GradientType::bf16; }}}},
      {"accumulation", levels<int>({{"1", 1}, {"2", 2}, {"4", 4}}, [](MeshCase& c, int v) { c.accumulation = v; })},
      {"dropout", levels<float>({{"0", 0.0f}, {"0.2", 0.2f}}, [](MeshCase& c, float v) { c.dropout = v; })},
  };
  return all;
}

MeshCase case_of(const Row& row) {
  MeshCase c;
  for (size_t f = 0; f < row.size(); ++f) factors()[f].levels[size_t(row[f])].apply(c);
  if (c.shape.shard % c.shape.replicate == 0) c.shape.shard /= c.shape.replicate;
  if (c.shape.pp > 1) c.virtual_stages = default_virtual_stages(c.schedule);
  return c;
}

// Whether every feature of the row is really there: a schedule needs a pipeline, and so on.
bool is_possible(const Row& row) {
  const MeshCase c = case_of(row);
  const MeshShape& s = c.shape;
  if (s.size() < 2 || s.size() > 16 || 8 % (s.dp() * c.accumulation) != 0) return false;
  if (c.mtp && family_defaults(c.family).position != PositionKind::rope) return false;
  if (c.offload_parameters != OffloadTo::none && c.zero != Zero::parameters) return false;
  if (c.offload_activations != OffloadTo::none && c.recompute.what != RecomputePolicy::What::block) return false;
  if (s.ep > 1 && (c.experts == 0 || s.shard * s.cp % s.ep != 0)) return false;
  if (s.pp == 1 && c.schedule != ScheduleKind::one_f_one_b) return false;
  if (s.cp == 1 && c.cp_mode != ContextMode::ring) return false;
  if (s.dp() == 1 && s.cp == 1 && c.zero != Zero::none) return false;
  if (s.replicate > 1 && (c.zero == Zero::none || s.dp() < 2)) return false;
  const int64_t tokens = 8 / (s.dp() * c.accumulation) * 16 / s.cp;
  return !c.sequence_parallel || (s.tp > 1 && tokens % s.tp == 0);
}

const CoveringArray& table() {
  static const CoveringArray array = [] {
    std::vector<int> num_levels;
    for (const Factor& f : factors()) num_levels.push_back(int(f.levels.size()));
    constexpr size_t kLeastRows = 160;
    return covering_array(num_levels, is_possible, kLeastRows);
  }();
  return array;
}

std::vector<MeshCase> cases() {
  std::vector<MeshCase> all;
  for (const Row& row : table().rows) all.push_back(case_of(row));
  return all;
}

class AllPairsTest : public testing::TestWithParam<MeshCase> {};
std::string case_name(const testing::TestParamInfo<MeshCase>& info) {
  return fmt::format("{:03}_{}", info.index, name_of(info.param));
}
INSTANTIATE_TEST_SUITE_P(Table, AllPairsTest, testing::ValuesIn(cases()), case_name);

TEST_P(AllPairsTest, EqualToOneRank) { expect_equal_to_one_rank(GetParam()); }

TEST(AllPairsTableTest, IsWhatTheDocumentationSays) {
  std::ifstream file(WEFT_SOURCE_DIR "/docs/parallelism.md");
  std::stringstream text;
  text << file.rdbuf();
  std::string factor_list;
  for (const Factor& f : factors()) {
    factor_list += fmt::format("| {} |", f.name);
    for (const Level& l : f.levels) factor_list += fmt::format("{} {}", &l == f.levels.data() ? "" : ",", l.name);
    factor_list += " |\n";
  }
  const std::string count = fmt::format("{} meshes hold all {} pairs", table().rows.size(), table().covered.size());
  EXPECT_GE(table().rows.size(), 150u);
  EXPECT_NE(text.str().find(count), std::string::npos) << "write: " << count;
  EXPECT_NE(text.str().find(factor_list), std::string::npos) << "write:\n" << factor_list;
}

}  // namespace
}  // namespace weft
