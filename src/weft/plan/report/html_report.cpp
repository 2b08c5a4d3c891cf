// html_report: the sections in order.
#include "weft/plan/report/html_report.h"

#include <fmt/format.h>

#include "weft/plan/report/axis.h"
#include "weft/plan/report/charts.h"
#include "weft/plan/report/memory_picture.h"
#include "weft/plan/report/timeline_picture.h"

namespace weft::plan {
namespace {

constexpr std::string_view kPageStyle = R"(
:root{color-scheme:light dark;--ink:#1b222b;--soft:#5c6775;--ground:#fff;--line:#d5dae1;--tint:#f3f6fa;--good:#1f7a4d}
@media (prefers-color-scheme:dark){:root{--ink:#e6ebf1;--soft:#9aa7b6;--ground:#12171d;--line:#303a46;--tint:#1b222b;--good:#5fd09a}}
body{margin:0;background:var(--ground);color:var(--ink);font:15px/1.5 system-ui,-apple-system,"Segoe UI","DejaVu Sans",sans-serif}
main{max-width:1120px;margin:0 auto;padding:28px 20px 60px}
h1{font-size:24px;line-height:1.25;margin:0 0 12px;overflow-wrap:anywhere}h2{font-size:18px;margin:38px 0 8px}
p{margin:0 0 10px;max-width:78ch}.lead{font-size:17px}.soft{color:var(--soft)}
.cards{display:grid;grid-template-columns:repeat(auto-fit,minmax(150px,1fr));gap:10px;margin:18px 0}
.card{background:var(--tint);border:1px solid var(--line);border-radius:8px;padding:10px 12px}
.card b{display:block;font-size:20px;font-weight:600}.card span{color:var(--soft);font-size:13px}
.scroll{overflow-x:auto}table{border-collapse:collapse;width:100%;font-size:13.5px}
caption{text-align:left;color:var(--soft);padding:0 0 6px}
th,td{padding:5px 9px;border-bottom:1px solid var(--line);text-align:right;vertical-align:top;font-variant-numeric:tabular-nums}
th{position:sticky;top:0;background:var(--ground);white-space:nowrap}td{white-space:nowrap}
th:first-child,td:first-child,.left{text-align:left;white-space:normal}
tr.choice td{background:var(--tint);font-weight:600}th button{font:inherit;color:inherit;background:none;border:0;padding:0;cursor:pointer}
th[aria-sort=ascending] button::after{content:" \25B2"}th[aria-sort=descending] button::after{content:" \25BC"}
figure{margin:10px 0 0}figcaption{color:var(--soft);font-size:13px;margin:4px 0 0}
)";

// Buttons in the heads of tables sort their rows by data-v, or by their text.
constexpr std::string_view kScript = R"(
for (const table of document.querySelectorAll("table.sortable")) {
  const body = table.tBodies[0];
  [...table.tHead.rows[0].cells].forEach((head, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = head.textContent;
    head.replaceChildren(button);
    button.addEventListener("click", () => {
      const up = head.getAttribute("aria-sort") !== "ascending";
      for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", up ? "ascending" : "descending");
      const key = row => row.cells[column].dataset.v ?? row.cells[column].textContent;
      [...body.rows].sort((a, b) => {
        const x = key(a), y = key(b), order = isNaN(x) || isNaN(y) ? x.localeCompare(y) : x - y;
        return up ? order : -order;
      }).forEach(row => body.append(row));
    });
  });
}
)";

class Page {
 public:
  explicit Page(const Report& report) : r_(report) {}

  std::string write() {
    const std::string title = r_.layouts.empty() ? fmt::format("A measured run: {}", r_.measured->name)
                                                 : fmt::format("{} on {}", r_.model, r_.cluster);
    out_ = fmt::format(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n"
        "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n"
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; "
        "script-src 'unsafe-inline'\"/>\n"
        "<title>{0}</title>\n<style>{1}{2}</style>\n</head>\n<body>\n<main>\n<h1>{0}</h1>\n",
        escaped(title), kPageStyle, picture_style());
    if (!r_.layouts.empty()) plan();
    if (r_.layouts.empty()) measured_alone();
    out_ += fmt::format("</main>\n<script>{}</script>\n</body>\n</html>\n", kScript);
    return std::move(out_);
  }

 private:
  void paragraph(std::string_view text, std::string_view cls = {}) {
    out_ += cls.empty() ? "<p>" : fmt::format("<p class=\"{}\">", cls);
    out_ += escaped(text) + "</p>\n";
  }
  void heading(std::string_view text) { out_ += fmt::format("<h2>{}</h2>\n", escaped(text)); }
  void figure(const std::string& svg, std::string_view caption) {
    out_ += fmt::format("<figure>\n{}<figcaption>{}</figcaption>\n</figure>\n", svg, escaped(caption));
  }
  void card(std::string_view value, std::string_view what) {
    out_ += fmt::format("<div class=\"card\"><b>{}</b><span>{}</span></div>\n", escaped(value), escaped(what));
  }
  void cell(std::string_view text, std::optional<double> value = {}, bool is_left = false) {
    out_ += "<td";
    if (value) out_ += fmt::format(" data-v=\"{:.9g}\"", *value);
    if (is_left) out_ += " class=\"left\"";
    out_ += fmt::format(">{}</td>", escaped(text));
  }
  // The first and the last column hold words, the others figures.
  void head(std::initializer_list<std::string_view> names) {
    out_ += "<thead><tr>";
    for (const std::string_view& name : names)
      out_ += fmt::format("<th scope=\"col\"{}>{}</th>", &name == names.end() - 1 ? " class=\"left\"" : "",
                          escaped(name));
    out_ += "</tr></thead>\n<tbody>\n";
  }

  void plan() {
    const Candidate& best = r_.layouts.front();
    const StepPlan& p = best.plan;
    const int devices = best.recipe.mesh.size();
    const auto& train = best.recipe.train;
    if (p.fits())
      paragraph(
          fmt::format(
              "The fastest layout that was found for {} devices is {}: a step of {} rows of {} tokens takes {}, "
              "which is {} tokens a second and {:.1f}% of what the devices can multiply. The fullest device "
              "holds {} of {}. What bounds it: {}.",
              devices, describe_layout(best.recipe), train.global_batch, train.seq_len, time_text(p.step_s),
              count_text(p.tokens_per_s), 100 * p.mfu, bytes_text(double(p.peak_bytes())),
              bytes_text(p.capacity_bytes), p.bound()),
          "lead");
    else
      paragraph(fmt::format(
                    "{} {}. The fullest device, on stage {}, would hold {} of {}: {} are missing. What would do: {}. "
                    "If it fitted, a step of {} rows of {} tokens would take {}.",
                    r_.num_layouts > 0 ? fmt::format("Nothing fits {}. The nearest layout is", r_.cluster)
                                       : fmt::format("This layout of {} does not fit:", r_.cluster),
                    describe_layout(best.recipe), p.fullest, bytes_text(double(p.peak_bytes())),
                    bytes_text(p.capacity_bytes), bytes_text(p.missing_bytes()), r_.remedy, train.global_batch,
                    train.seq_len, time_text(p.step_s)),
                "lead");
    paragraph(explain_layout(best.recipe), "soft");
    out_ += "<div class=\"cards\">\n";
    card(time_text(p.step_s), "a step");
    card(count_text(p.tokens_per_s), "tokens a second");
    card(count_text(p.tokens_per_s / devices), "tokens a second and device");
    card(fmt::format("{:.1f}%", 100 * p.mfu), "MFU, causal attention counted once");
    card(bytes_text(double(p.peak_bytes())), "on the fullest device");
    card(fmt::format("{:.1f}%", 100 * p.bubble), "bubble");
    out_ += "</div>\n";
    layouts();
    heading("Where the time goes");
    const std::span<const Candidate> shown(r_.layouts.data(), std::min<size_t>(r_.layouts.size(), 6));
    figure(draw_breakdown(shown), "The slowest stage of each layout; bars add up to its step.");
    timelines();
    heading("Memory over a step");
    figure(draw_memory(p, timeline_of(p).seconds),
           "By use, from weights at the ground to communication on top. The mark is the highest point.");
    if (!r_.same_batch.empty() || !r_.grown_batch.empty()) scaling();
    heading("How to read this");
    paragraph(
        "The trainer was run on tensors without data, and what it did was simulated on described hardware; nothing "
        "was "
        "measured on these devices. docs/planning.md says how, and how far predictions of published runs are off.",
        "soft");
  }

  void layouts() {
    heading("Layouts");
    out_ += "<div class=\"scroll\"><table class=\"sortable\">\n";
    std::string caption = "The step of each of these was traced in full.";
    if (r_.num_layouts > 0)
      caption = fmt::format("{} layouts were looked at, of which {} fit by an estimate; these were traced in full.",
                            r_.num_layouts, r_.num_fitting);
    out_ += fmt::format("<caption>{}</caption>\n", escaped(caption));
    head({"layout", "step", "tokens/s", "MFU", "bubble", "memory", "loses"});
    for (size_t i = 0; i < r_.layouts.size(); ++i) {
      const Candidate& c = r_.layouts[i];
      const StepPlan& p = c.plan;
      out_ += i == 0 ? "<tr class=\"choice\">" : "<tr>";
      cell(describe_layout(c.recipe));
      cell(time_text(p.step_s), p.step_s);
      cell(count_text(p.tokens_per_s), p.tokens_per_s);
      cell(fmt::format("{:.1f}%", 100 * p.mfu), p.mfu);
      cell(fmt::format("{:.1f}%", 100 * p.bubble), p.bubble);
      cell(bytes_text(double(p.peak_bytes())), double(p.peak_bytes()));
      cell(i > 0 ? c.loses : p.fits() ? "the choice" : "the nearest; it does not fit", {}, true);
      out_ += "</tr>\n";
    }
    out_ += "</tbody></table></div>\n";
  }

  void timelines() {
    const StepPlan& p = r_.layouts.front().plan;
    const auto all = r_.layouts.front().recipe.train.accumulation;
    std::vector<Timeline> drawn = {timeline_of(p)};
    std::string caption = "One rank of each stage of the pipeline stands for all of it. ";
    if (p.num_played < all)
      caption += fmt::format("{} of {} micro-batches are drawn: each more takes the same. ", p.num_played, all);
    heading(r_.measured ? "Plan and run" : "Timeline");
    if (r_.measured) {
      drawn.push_back(last_step_of(*r_.measured));
      paragraph(fmt::format("Planned: {} a step. Measured: {} for the last step of {}, {:.2f} times as long.",
                            time_text(drawn[0].seconds), time_text(drawn[1].seconds), r_.measured->name,
                            drawn[1].seconds / drawn[0].seconds));
    }
    figure(draw_timelines(drawn), caption +
                                      "From above in each line: actions (F forward, B backward, W weight gradients, "
                                      "with the micro-batch), kernels, communication. Point at a bar for its times.");
  }

  void scaling() {
    heading("Scaling");
    figure(draw_scaling(r_.same_batch, r_.grown_batch),
           "The best layout that a quick search finds at each size. The dashed line is perfect scaling.");
    out_ += "<div class=\"scroll\"><table class=\"sortable\">\n<caption>The same as figures.</caption>\n";
    head({"devices", "rows", "step", "tokens/s", "tokens/s a device", "MFU", "layout"});
    for (const auto* points : {&r_.same_batch, &r_.grown_batch})
      for (const ScalePoint& s : *points) {
        out_ += "<tr>";
        cell(fmt::format("{}", s.num_devices), s.num_devices);
        cell(fmt::format("{}", s.global_batch), double(s.global_batch));
        cell(s.is_planned() ? time_text(s.step_s) : "–", s.is_planned() ? s.step_s : 1e30);
        cell(s.is_planned() ? count_text(s.tokens_per_s) : "–", s.tokens_per_s);
        cell(s.is_planned() ? count_text(s.tokens_per_s_a_device()) : "–", s.tokens_per_s_a_device());
        cell(s.is_planned() ? fmt::format("{:.1f}%", 100 * s.mfu) : "–", s.mfu);
        cell(s.is_planned() ? s.layout : s.why_not, {}, true);
        out_ += "</tr>\n";
      }
    out_ += "</tbody></table></div>\n";
  }

  void measured_alone() {
    const Timeline& t = *r_.measured;
    paragraph(fmt::format("{} ranks over {}.", t.ranks.size(), time_text(t.seconds)), "lead");
    heading("Timeline");
    const Timeline drawn[] = {t};
    figure(draw_timelines(drawn),
           "From above in each line: actions of the pipeline, ops, communication. Point at a bar for its times.");
    heading("Where the time goes");
    out_ +=
        "<div class=\"scroll\"><table class=\"sortable\">\n<caption>Shares of each rank's time; what is left is "
        "waiting, and work outside of ops.</caption>\n<thead><tr><th scope=\"col\">rank</th>";
    for (int kind = 0; kind < kNumSpanKinds; ++kind)
      if (is_of_compute(SpanKind(kind))) out_ += fmt::format("<th scope=\"col\">{}</th>", name_of(SpanKind(kind)));
    out_ += "<th scope=\"col\">rest</th></tr></thead>\n<tbody>\n";
    constexpr size_t kMostRows = 256;
    const std::vector<std::vector<double>> seconds = seconds_by_kind(t);
    for (size_t rank = 0; rank < std::min(seconds.size(), kMostRows); ++rank) {
      double rest = t.seconds;
      out_ += "<tr>";
      cell(t.ranks[rank]);
      for (int kind = 0; kind < kNumSpanKinds; ++kind) {
        if (!is_of_compute(SpanKind(kind))) continue;
        const double s = seconds[rank][size_t(kind)];
        rest -= s;
        cell(fmt::format("{:.1f}%", 100 * s / t.seconds), s);
      }
      cell(fmt::format("{:.1f}%", 100 * rest / t.seconds), rest);
      out_ += "</tr>\n";
    }
    out_ += "</tbody></table></div>\n";
  }
  static bool is_of_compute(SpanKind kind) { return kind != SpanKind::collective && kind != SpanKind::message; }

  const Report& r_;
  std::string out_;
};

}  // namespace

Timeline timeline_of(const StepPlan& plan) {
  Timeline t{.name = "plan", .ranks = {}, .spans = plan.spans};
  for (size_t stage = 0; stage < plan.memory.size(); ++stage)
    t.ranks.push_back(plan.memory.size() > 1 ? fmt::format("stage {}", stage) : "a device");
  for (const Span& s : t.spans) t.seconds = std::max(t.seconds, s.end_s);
  return t;
}

std::string html_report(const Report& report) { return Page(report).write(); }

}  // namespace weft::plan
