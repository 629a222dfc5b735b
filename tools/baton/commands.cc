#include "tools/baton/commands.h"

#include <unistd.h>

#include <cstdio>
#include <iostream>

#include "absl/strings/escaping.h"
#include "absl/strings/str_format.h"
#include "base/status_macros.h"

namespace baton::tools {
namespace {

bool PrintPiece(const std::string& text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
  return std::fflush(stdout) == 0;
}

void PrintSummary(const AnswerSummary& summary) {
  absl::PrintF("\n\n[%u prompt tokens, %u generated (%s); TTFT %.1f ms; %.1f tokens/s; total %.2f s]\n",
               summary.prompt_tokens, summary.completion_tokens, summary.finish_reason,
               absl::ToDoubleMilliseconds(summary.time_to_first_token),
               summary.tokens_per_second(), absl::ToDoubleSeconds(summary.total));
}

absl::Status ChatOnce(InferenceClient& client, std::vector<ChatTurn>& turns,
                      const AnswerOptions& options) {
  ASSIGN_OR_RETURN(const AnswerSummary summary, client.Chat(turns, options, PrintPiece));
  PrintSummary(summary);
  turns.push_back({.role = "assistant", .content = summary.text});
  return absl::OkStatus();
}

absl::Status ChatAtTerminal(InferenceClient& client, std::vector<ChatTurn> turns,
                            const AnswerOptions& options) {
  const bool interactive = isatty(STDIN_FILENO) != 0;
  if (interactive) absl::PrintF("Type a message; an empty line or Ctrl-D ends the chat.\n");
  for (;;) {
    if (interactive) PrintPiece("\n> ");
    std::string line;
    if (!std::getline(std::cin, line) || line.empty()) return absl::OkStatus();
    turns.push_back({.role = "user", .content = line});
    RETURN_IF_ERROR(ChatOnce(client, turns, options));
  }
}

}  // namespace

absl::Status RunChat(InferenceClient& client, const ChatSettings& settings) {
  std::vector<ChatTurn> turns;
  if (!settings.system.empty()) turns.push_back({.role = "system", .content = settings.system});
  if (settings.prompt.empty()) return ChatAtTerminal(client, std::move(turns), settings.options);
  turns.push_back({.role = "user", .content = settings.prompt});
  return ChatOnce(client, turns, settings.options);
}

absl::Status RunGenerate(InferenceClient& client, const std::string& prompt,
                         const AnswerOptions& options) {
  ASSIGN_OR_RETURN(const AnswerSummary summary, client.Generate(prompt, options, PrintPiece));
  PrintSummary(summary);
  return absl::OkStatus();
}

absl::Status RunTokenize(InferenceClient& client, const std::string& text, bool parse_special) {
  ASSIGN_OR_RETURN(const std::vector<TokenDescription> tokens,
                   client.Tokenize(text, parse_special));
  for (const TokenDescription& token : tokens) {
    absl::PrintF("%8u  \"%s\"\n", token.id, absl::Utf8SafeCHexEscape(token.bytes));
  }
  return absl::OkStatus();
}

absl::Status RunModels(InferenceClient& client) {
  ASSIGN_OR_RETURN(const std::vector<ModelDescription> models, client.ListModels());
  for (const ModelDescription& model : models) {
    absl::PrintF("%s  architecture=%s context=%u vocabulary=%u chat=%s\n", model.name,
                 model.architecture, model.context_tokens, model.vocabulary_size,
                 model.has_chat_template ? "yes" : "no");
  }
  return absl::OkStatus();
}

absl::Status RunStatus(InferenceClient& client) {
  ASSIGN_OR_RETURN(const ClusterDescription cluster, client.GetClusterStatus());
  absl::PrintF("up %s, %u requests waiting, %u running\n",
               absl::FormatDuration(absl::Trunc(cluster.uptime, absl::Seconds(1))),
               cluster.requests_waiting, cluster.requests_running);
  absl::PrintF("%-8s %-21s %-9s %-10s %8s %8s %8s %8s %7s %7s %8s %10s\n", "ROLE", "ADDRESS", "STATE",
               "CPU", "BLOCKS", "FREE", "PINNED", "RESERVED", "QUEUED", "TOKENS", "RUNNING", "STEPS");
  for (const WorkerDescription& worker : cluster.workers) {
    absl::PrintF("%-8s %-21s %-9s %-10s %8u %8u %8u %8u %7u %7u %8u %10u\n", worker.role,
                 worker.address, worker.state, worker.cpu_level, worker.blocks_total,
                 worker.blocks_free, worker.blocks_pinned, worker.blocks_reserved,
                 worker.queued_requests, worker.queued_tokens, worker.running_sequences,
                 worker.step_count);
  }
  return absl::OkStatus();
}

}  // namespace baton::tools
