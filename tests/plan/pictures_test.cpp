// The pictures: they are well-formed, what they show stands where its time is, and names from outside stay text.
#include <nlohmann/json.hpp>

#include "base/temporary_folder.h"
#include "support/xml_problem.h"
#include "train/training_setup.h"
#include "weft/plan/read_trace.h"
#include "weft/plan/report/axis.h"
#include "weft/plan/report/charts.h"
#include "weft/plan/report/html_report.h"
#include "weft/plan/report/timeline_picture.h"
#include "weft/plan/write_trace.h"
#include "weft/train/trace_ops.h"

namespace weft::plan {
namespace {

double attribute(std::string_view tag, std::string_view name) {
  const size_t at = tag.find(fmt::format(" {}=\"", name));
  return at == std::string_view::npos ? NAN : std::stod(std::string(tag.substr(at + name.size() + 3, 24)));
}

// The rectangle whose tooltip begins so.
std::string_view rect_of(std::string_view svg, std::string_view tooltip) {
  const size_t title = svg.find(fmt::format("<title>{}", tooltip));
  if (title == std::string_view::npos) return {};
  const size_t begin = svg.rfind("<rect", title);
  return svg.substr(begin, title - begin);
}

Timeline two_ranks() {
  Timeline t{.name = "plan", .ranks = {"stage 0", "stage 1"}, .spans = {}, .seconds = 10};
  t.spans = {{.rank = 0, .kind = SpanKind::forward, .name = "forward", .begin_s = 0, .end_s = 2},
             {.rank = 0, .kind = SpanKind::backward, .name = "backward", .begin_s = 5, .end_s = 10},
             {.rank = 1, .kind = SpanKind::recompute, .name = "recompute", .begin_s = 2.5, .end_s = 4},
             {.rank = 1,
              .track = TraceTrack::pipeline,
              .kind = SpanKind::backward,
              .name = "backward",
              .begin_s = 2.5,
              .end_s = 7.5,
              .stage = 1,
              .micro_batch = 3}};
  return t;
}

TEST(TimelinePictureTest, SpansStandWhereTheirTimesAre) {
  const Timeline timelines[] = {two_ranks()};
  const TimelinePicture options{.width = 1106, .left = 92};  // 1000 for ten seconds
  const std::string svg = draw_timelines(timelines, options);
  ASSERT_EQ(xml_problem(svg), "");
  struct Expected {
    const char* tooltip;
    double x, width;
  };
  for (const Expected& e :
       {Expected{"forward: ", 92, 200}, Expected{"backward: ", 592, 500}, Expected{"recompute: ", 342, 150},
        Expected{"backward, stage 1, micro-batch 3", 342, 500}}) {
    const std::string_view rect = rect_of(svg, e.tooltip);
    ASSERT_FALSE(rect.empty()) << e.tooltip;
    EXPECT_NEAR(attribute(rect, "x"), e.x, 0.02) << e.tooltip;
    EXPECT_NEAR(attribute(rect, "width"), e.width, 0.7) << e.tooltip;  // actions leave a gap
  }
  EXPECT_NE(svg.find(">B3</text>"), std::string::npos);
  // The second rank stands below the first.
  EXPECT_GT(attribute(rect_of(svg, "recompute: "), "y"), attribute(rect_of(svg, "forward: "), "y") + 10);
}

TEST(TimelinePictureTest, NarrowSpansAreDrawnTogether) {
  Timeline t{.name = "many", .ranks = {"rank 0"}, .spans = {}, .seconds = 1};
  constexpr int kMany = 1'000'000;
  for (int i = 0; i < kMany; ++i)
    t.spans.push_back({.kind = i % 4 == 0 ? SpanKind::backward : SpanKind::forward,
                       .name = "op",
                       .begin_s = double(i) / kMany,
                       .end_s = (i + 0.9) / kMany});
  const Timeline timelines[] = {t};
  const std::string svg = draw_timelines(timelines);
  EXPECT_EQ(xml_problem(svg), "");
  EXPECT_LT(svg.size(), 4u << 20);
  EXPECT_GT(svg.size(), 100'000u);
  EXPECT_EQ(svg.find("class=\"k-backward\">"), std::string::npos);  // forward takes most of each
}

TEST(TimelineTest, ChildrenCoverTheirParents) {
  const std::vector<Span> flat = flattened({{.name = "child", .begin_s = 2, .end_s = 3},
                                            {.name = "parent", .begin_s = 1, .end_s = 6},
                                            {.name = "late", .begin_s = 5, .end_s = 7}});
  std::string text;
  for (const Span& s : flat) text += fmt::format("{} {}-{};", s.name, s.begin_s, s.end_s);
  EXPECT_EQ(text, "parent 1-2;child 2-3;parent 3-5;late 5-7;");
}

TEST(AxisTest, TicksAreRound) {
  EXPECT_EQ(round_ticks(9.3, 5), (std::vector<double>{0, 2, 4, 6, 8}));
  EXPECT_EQ(round_ticks(0, 5).size(), 1u);
  EXPECT_LE(round_ticks(0.00731, 10).size(), 11u);
  EXPECT_EQ(time_text(0.0123), "12.3 ms");
  EXPECT_EQ(bytes_text(3.0 * (1 << 30)), "3 GiB");
}

// A plan of the small model on a cluster, with everything that a report shows.
Report small_report() {
  Report r{.model = "<script>alert(1)</script>\" onload=\"x", .cluster = "4x<b>&\xff", .request = {}, .layouts = {}};
  Recipe recipe = small_recipe("llama", Precision::bf16, 1, 4);
  recipe.mesh.shape.pp = 2;
  const Cluster cluster = parse_cluster("2xh100-sxm");
  Candidate c;
  c.recipe = recipe, c.plan = plan_step(recipe, cluster, {.has_spans = true});
  r.layouts = {c, c};
  r.layouts[1].loses = "<i>nothing</i>";
  r.same_batch = {{.num_devices = 8, .global_batch = 8, .layout = "dp=8", .step_s = 1, .tokens_per_s = 800},
                  {.num_devices = 16, .global_batch = 8, .why_not = "does <not> fit"},
                  {.num_devices = 32, .global_batch = 8, .layout = "dp=32", .step_s = 0.5, .tokens_per_s = 1600}};
  return r;
}

TEST(HtmlReportTest, NamesFromOutsideStayText) {
  Report r = small_report();
  r.measured = two_ranks();
  r.measured->name = "</svg><script>x()</script>";
  r.measured->ranks[1] = "<img src=x onerror=y>";
  const std::string html = html_report(r);
  ASSERT_EQ(xml_problem(html), "");
  EXPECT_EQ(html.find("<script>alert"), std::string::npos);
  EXPECT_EQ(html.find("<script>x"), std::string::npos);
  EXPECT_EQ(html.find("<img"), std::string::npos);
  EXPECT_EQ(html.find("onload=\""), std::string::npos);
  EXPECT_NE(html.find("&lt;script&gt;alert(1)"), std::string::npos);
  EXPECT_NE(html.find("does &lt;not&gt; fit"), std::string::npos);
}

TEST(HtmlReportTest, NeedsNothingFromOutside) {
  const std::string html = html_report(small_report());
  for (const char* outside : {"http:", "https:", "src=", "href=", "url(", "@import"})
    EXPECT_EQ(html.find(outside), std::string::npos) << outside;
  for (const char* part : {"id=\"timeline-title\"", "id=\"memory-title\"", "id=\"scaling-title\"",
                           "id=\"breakdown-title\"", "scope=\"col\"", "prefers-color-scheme:dark", "lang=\"en\""})
    EXPECT_NE(html.find(part), std::string::npos) << part;
}

// A line goes on behind a size that was left out, and ends where one does not fit.
TEST(ScalingTest, LinesEndWhereNothingFits) {
  const auto num_parts = [](const ScalePoint& middle) {
    const std::vector<ScalePoint> points = {{.num_devices = 8, .layout = "a", .step_s = 1, .tokens_per_s = 800},
                                            middle,
                                            {.num_devices = 32, .layout = "b", .step_s = 1, .tokens_per_s = 3000}};
    const std::string svg = draw_scaling(points, {});
    EXPECT_EQ(xml_problem(svg), "");
    const size_t path = svg.find("<path class=\"c-same\"");
    const std::string_view d = std::string_view(svg).substr(path, svg.find("/>", path) - path);
    return std::ranges::count(d, 'M');
  };
  EXPECT_EQ(num_parts({.num_devices = 16, .why_not = "time", .is_left_out = true}), 1);
  EXPECT_EQ(num_parts({.num_devices = 16, .why_not = "does not fit"}), 2);
}

// Points within the time, and what does not divide is said.
TEST(ScalingTest, SizesThatDoNotDivideSaySo) {
  SearchRequest request;
  request.model = small_recipe("llama", Precision::bf16, 1).model;
  request.model.context = 64;
  request.seq_len = 64, request.global_batch = 8, request.cluster = parse_cluster("8xh100-sxm");
  const std::vector<ScalePoint> points = scaling(request, {.first = 2, .last = 512, .max_seconds = 60});
  ASSERT_EQ(points.size(), 9u);
  EXPECT_TRUE(points.front().is_planned()) << points.front().why_not;
  EXPECT_FALSE(points.front().layout.empty());
  EXPECT_NE(points.back().why_not.find("divides a batch of 8 rows"), std::string::npos) << points.back().why_not;
  for (const ScalePoint& p : scaling(request, {.first = 2, .last = 512, .max_seconds = -1}))
    EXPECT_TRUE(p.is_left_out);
  request.distill.teacher = "other", request.teacher = request.model;
  request.teacher->vocab += 1;  // no batch helps against that
  const std::string why_not = scale_point(request, 2, 8).why_not;
  EXPECT_NE(why_not.find("distill.teacher = \"other\""), std::string::npos) << why_not;
}

// The planned memory curve reaches the planned peak, when and where the plan says.
TEST(MemoryCurveTest, ReachesThePeak) {
  const Report r = small_report();
  const StepPlan& p = r.layouts.front().plan;
  ASSERT_EQ(p.curves.size(), 2u);
  for (size_t stage = 0; stage < 2; ++stage) {
    const MemoryCurve& curve = p.curves[stage];
    const auto most = std::ranges::max_element(curve.points, {}, [](const auto& q) { return q.split.total(); });
    EXPECT_EQ(most->split.total(), p.memory[stage].split.total());
    EXPECT_DOUBLE_EQ(most->begin_s, curve.peak_s);
    EXPECT_TRUE(std::ranges::is_sorted(curve.points, {}, &MemoryCurve::Point::begin_s));
  }
}

// Where time goes is asked of the device; what its host does stays beside it.
TEST(ReadTraceTest, KeepsTheHostOfADevice) {
  constexpr const char* kEvent = R"({"ph":"X","pid":0,"tid":3,"ts":0,"name":"matmul","args":{"phase":"forward"},)";
  for (const char* category : {"host", "other"}) {
    const std::string json =
        fmt::format(R"([{0}"cat":"{1}","dur":5000}},{0}"cat":"compute","dur":2000}}])", kEvent, category);
    const Timeline t = read_trace(json, "device.json");
    ASSERT_EQ(t.spans.size(), 2u);
    EXPECT_EQ(t.spans[0].track, TraceTrack::host);
    EXPECT_EQ(t.spans[1].track, TraceTrack::compute);
    EXPECT_DOUBLE_EQ(seconds_by_kind(t)[0][size_t(SpanKind::forward)], 2e-3);
  }
}

// What is planned and written is read back as it was.
TEST(ReadTraceTest, ReadsAPlannedStep) {
  const Timeline t = timeline_of(small_report().layouts.front().plan);
  const Timeline read = read_trace(trace_json(t), "step.json");
  EXPECT_EQ(read.ranks, t.ranks);
  ASSERT_EQ(read.spans.size(), t.spans.size());
  for (size_t i = 0; i < t.spans.size(); ++i) {
    const Span &a = t.spans[i], &b = read.spans[i];
    EXPECT_EQ(b.kind, a.kind) << a.name;
    EXPECT_EQ(b.track, a.track);
    EXPECT_EQ(b.rank, a.rank);
    EXPECT_NEAR(b.begin_s, a.begin_s, 1e-9);
    EXPECT_NEAR(b.end_s, a.end_s, 1e-9);
    EXPECT_EQ(b.micro_batch, a.micro_batch);
  }
}

// A run of two ranks that are stages of a pipeline, traced for two steps.
TEST(ReadTraceTest, ReadsAMeasuredRun) {
  const TemporaryFolder folder;
  Recipe recipe = small_recipe("llama", Precision::fp32, 1, 4);
  recipe.mesh.shape.pp = 2;
  recipe.train.recompute = {RecomputePolicy::What::block};
  run_ranks(2, [&](Communicator& world) {
    TestRank rank(cpu_kernels());
    TraceOps trace(world, rank.context);
    const SyntheticBatches batches = batches_of(recipe);
    Trainer trainer(rank.context, world, recipe, batches);
    trainer.observe_actions([&](const Action& action, bool is_begin) { trace.record(action, is_begin); });
    trace.start();
    trainer.step();
    trainer.step();
    trace.stop();
    trace.write(folder / "trace.json");
  });
  const Timeline t = load_trace(folder / "trace.json");
  EXPECT_EQ(t.ranks, (std::vector<std::string>{"rank 0", "rank 1"}));
  const std::vector<std::vector<double>> seconds = seconds_by_kind(t);
  for (const auto& of_rank : seconds)
    for (const SpanKind kind :
         {SpanKind::forward, SpanKind::backward, SpanKind::weight_gradient, SpanKind::recompute, SpanKind::optimizer})
      EXPECT_GT(of_rank[size_t(kind)], 0) << name_of(kind);
  const auto num_forwards = [](const Timeline& timeline) {
    return std::ranges::count_if(timeline.spans, [](const Span& s) {
      return s.track == TraceTrack::pipeline && s.kind == SpanKind::forward && s.rank == 0;
    });
  };
  EXPECT_EQ(num_forwards(t), 8);
  EXPECT_EQ(num_forwards(last_step_of(t)), 4);
  const Timeline timelines[] = {timeline_of(small_report().layouts.front().plan), last_step_of(t)};
  EXPECT_EQ(xml_problem(draw_timelines(timelines, {.is_document = true})), "");
}

struct BadTrace {
  const char* name;
  const char* json;
  const char* why;
};
class BadTraceTest : public testing::TestWithParam<BadTrace> {};
TEST_P(BadTraceTest, IsRefusedInOneSentence) {
  try {
    read_trace(GetParam().json, "t.json", {.max_events = 3, .max_depth = 6, .max_ranks = 2});
    FAIL() << "was read";
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find(GetParam().why), std::string::npos) << e.what();
    EXPECT_EQ(std::string(e.what()).find('\n'), std::string::npos);
  }
}
#define EVENT(pid, ts, dur) R"({"ph":"X","name":"a","pid":)" #pid R"(,"tid":0,"ts":)" #ts R"(,"dur":)" #dur "}"
INSTANTIATE_TEST_SUITE_P(
    Texts, BadTraceTest,
    testing::Values(
        BadTrace{"Empty", "", "not JSON at byte"}, BadTrace{"Number", "7", "no \"traceEvents\""},
        BadTrace{"Cut", R"({"traceEvents":[{"ph":"X")", "not JSON at byte"},
        BadTrace{"NoEvents", R"({"traceEvents":[]})", "no complete events"},
        BadTrace{"OnlyNames", R"([{"ph":"M","name":"process_name","pid":0,"args":{"name":"x"}}])",
                 "no complete events"},
        BadTrace{"NoTime", R"([{"ph":"X","name":"a","pid":0}])", "event 1 (\"a\") has no time"},
        BadTrace{"TimeIsText", R"([{"ph":"X","name":"a","pid":0,"ts":"1","dur":2}])", "has no time"},
        BadTrace{"Negative", "[" EVENT(0, 1, -1) "]", "has no time"},
        BadTrace{"Huge", "[" EVENT(0, 1e300, 1) "]", "has no time"},
        BadTrace{"NoDuration", "[" EVENT(0, 1, 0) "]", "take no time"},
        BadTrace{"ManyEvents", "[" EVENT(0, 1, 1) "," EVENT(0, 2, 1) "," EVENT(0, 3, 1) "," EVENT(0, 4, 1) "]",
                 "more than 3 events"},
        BadTrace{"ManyRanks", "[" EVENT(0, 1, 1) "," EVENT(1, 2, 1) "," EVENT(2, 3, 1) "]", "more than 2 ranks"},
        BadTrace{"HalfAProcess", "[" EVENT(0.5, 1, 1) "]", "a process is called 0.5"},
        BadTrace{"Deep", "[[[[[[[[]]]]]]]]", "more than 6 lists"}),
    [](const auto& test) { return std::string(test.param.name); });

// Any change of a good trace is read or refused, never more.
TEST(ReadTraceTest, SurvivesChanges) {
  const std::string good = trace_json(two_ranks());
  std::mt19937 random(5);
  for (int i = 0; i < 2000; ++i) {
    std::string changed = good;
    for (int n = 1 + i % 3; n > 0; --n) changed[random() % changed.size()] = char(random());
    if (i % 5 == 0) changed.resize(random() % changed.size());
    try {
      const Timeline timelines[] = {read_trace(changed, "changed.json")};
      if (i % 10 == 0) EXPECT_EQ(xml_problem(draw_timelines(timelines)), "");
    } catch (const Error&) {
    }
  }
}

}  // namespace
}  // namespace weft::plan
