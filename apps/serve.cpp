// heed serve: a translation server. Signals, flags and the log; the rest is heed/serve.
#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <thread>

#include "apps/commands.h"
#include "apps/inference.h"
#include "heed/serve/server.h"

namespace heed::apps {
namespace {

using serve::Models;
using serve::Server;

struct Options {
  const CLI::App* command = nullptr;
  std::vector<std::string> models, allow_hosts;
  serve::ServerOptions server;
  std::string api_keys, pivot, cors = "*";
  double unload_after = 0, read_time = 30, idle_time = 60, time_limit = 600;
  bool preload = false, open = false, no_files = false, no_weblate_check = false, quiet = false;
  Inference machine;
};

// Whole, whatever its length and whoever else says something: fprintf lets others in between parts
// of a long line.
void say(std::string line) {
  line += '\n';
  std::fwrite(line.data(), 1, line.size(), stderr);
}

std::chrono::milliseconds seconds(double count) {
  return std::chrono::milliseconds(static_cast<int64_t>(count * 1000));
}

bool is_loopback(const std::string& host) {
  return host == "localhost" || host == "::1" || host.starts_with("127.");
}

// The signals of a server go to one thread, which waits for them; all others have them blocked.
sigset_t blocked_signals() {
  sigset_t all;
  sigemptyset(&all);
  for (const int s : {SIGTERM, SIGINT, SIGHUP, SIGUSR1}) sigaddset(&all, s);
  pthread_sigmask(SIG_BLOCK, &all, nullptr);
  return all;
}

// A connection is a descriptor, of which a process may have few unless it asks for more.
void allow_connections(serve::HttpOptions& o) {
  constexpr rlim_t kOthers = 200;  // models, the log, what is being loaded
  rlimit most{};
  if (getrlimit(RLIMIT_NOFILE, &most) != 0 || most.rlim_cur == RLIM_INFINITY) return;
  const rlim_t wanted = static_cast<rlim_t>(o.connections) + kOthers;
  if (most.rlim_cur < wanted) {
    most.rlim_cur = std::min(wanted, most.rlim_max);
    setrlimit(RLIMIT_NOFILE, &most);
    getrlimit(RLIMIT_NOFILE, &most);
  }
  if (most.rlim_cur >= wanted) return;
  o.connections = static_cast<int64_t>(most.rlim_cur - std::min(most.rlim_cur / 2, kOthers));
  say("heed: at most " + std::to_string(o.connections) + " connections: the system lets it have " +
      std::to_string(most.rlim_cur) + " descriptors (ulimit -n)");
}

class Signals {
 public:
  Signals(Server& server, const sigset_t& all)
      : thread_([&server, all, this] {
          for (;;) {
            int signal = 0;
            if (sigwait(&all, &signal) != 0 || done_) return;
            if (signal == SIGHUP)
              server.reload();
            else if (signal != SIGUSR1)
              server.stop();
          }
        }) {}
  ~Signals() {
    done_ = true;
    pthread_kill(thread_.native_handle(), SIGUSR1);
    thread_.join();
  }

 private:
  std::atomic<bool> done_ = false;
  std::thread thread_;
};

void run(Options o) {
  serve::ServiceOptions& service = o.server.service;
  serve::HttpOptions& http = o.server.http;
  want(!o.models.empty(),
       "--model is required: two languages and a folder that 'heed train' made, en-fr=FOLDER");
  std::vector<serve::LanguagePair> pairs;
  for (const std::string& text : o.models)
    pairs.push_back(as_usage([&] { return serve::parse_pair(text); }));
  want(!service.require_key || !o.api_keys.empty(), "--require-key wants --api-keys, a file");
  want(is_loopback(http.host) || service.require_key || o.open,
       "--host " + http.host + " lets other machines ask: give --api-keys and --require-key, or " +
           "--open to serve whoever comes");
  want(service.url_prefix.empty() ||
           (service.url_prefix.starts_with('/') && !service.url_prefix.ends_with('/')),
       "--url-prefix wants a path such as /translator");
  want(o.models.size() == 1 || o.machine.shortlist.empty() || o.machine.shortlist == "none",
       "--shortlist names a file for one --model; of several each has its own ('heed shortlist'), "
       "or none");
  if (o.command->count("--beam") > 0) service.said.insert("beam");
  as_usage([&] { check(service.translate.search); });
  const sigset_t signals = blocked_signals();  // before there are other threads
  use(o.machine);
  Models models(std::move(pairs),
                {.load = load_options(o.machine),
                 .unload_after = seconds(o.unload_after),
                 .pivot = o.pivot,
                 .told = [](const std::string& words) { say("heed: " + words); }});
  service.keys = !o.api_keys.empty();
  service.files = !o.no_files;
  service.weblate_check = !o.no_weblate_check;
  service.time_limit = seconds(o.time_limit);
  service.cors = o.cors == "none" ? std::nullopt : std::optional(o.cors);
  if (is_loopback(http.host)) {
    service.hosts = {"localhost", "127.0.0.1", "::1", http.host};
    service.hosts.insert(service.hosts.end(), o.allow_hosts.begin(), o.allow_hosts.end());
  }
  if (!o.quiet) service.log = say;
  http.read_time = seconds(o.read_time), http.idle_time = seconds(o.idle_time);
  o.server.keys = o.api_keys;
  allow_connections(http);
  if (o.preload) models.load_all();
  Server server(models, o.server);
  const Signals waiting(server, signals);
  const std::string host =
      http.host.find(':') == std::string::npos ? http.host : "[" + http.host + "]";
  say("heed: listening at http://" + host + ":" + std::to_string(server.port()) +
      service.url_prefix + "/ (Ctrl-C ends it)");
  server.run();
  say("heed: everything is answered");
}

void add_limits(CLI::App& command, Options& o) {
  serve::ServiceOptions& s = o.server.service;
  const auto limit = [&](const char* flag, int64_t& value, const char* what) {
    command.add_option(flag, value, what)->check(CLI::Range(-1, 1000000000))->group("Limits");
  };
  limit("--char-limit", s.char_limit, "characters of a text at most; -1: any number");
  limit("--batch-limit", s.batch_limit, "texts of a request at most; -1: any number");
  limit("--req-limit", s.req_limit, "requests a minute, of a key or an address; -1: any number");
  limit("--hourly-req-limit", s.hourly_req_limit, "and an hour");
  limit("--daily-req-limit", s.daily_req_limit, "and a day");
  limit("--alternatives-limit", s.alternatives_limit, "alternatives of a text at most");
  limit("--beam-limit", s.beam_limit, "the widest beam that /v1/translate may ask for");
  command.add_option("--body-limit", o.server.http.body_bytes, "bytes of a request's body at most")
      ->check(above_zero())
      ->group("Limits");
  command.add_option("--connections", o.server.http.connections, "open connections at most")
      ->check(above_zero())
      ->group("Limits");
  command
      .add_option("--workers", o.server.workers,
                  "requests that are translated at a time; their sentences share batches")
      ->check(CLI::Range(1, 10000))
      ->group("Limits");
  command.add_option("--queue", o.server.queue, "requests that may wait for that")
      ->check(CLI::Range(0, 1000000))
      ->group("Limits");
  command.add_option("--time-limit", o.time_limit, "seconds that a request may take")
      ->check(above_zero())
      ->group("Limits");
  command.add_option("--read-time", o.read_time, "seconds in which a request must have come")
      ->check(above_zero())
      ->group("Limits");
  command.add_option("--idle-time", o.idle_time, "seconds between two requests of a connection")
      ->check(above_zero())
      ->group("Limits");
}

}  // namespace

void add_serve(CLI::App& app) {
  auto o = std::make_shared<Options>();
  serve::ServiceOptions& s = o->server.service;
  CLI::App* command = app.add_subcommand(
      "serve",
      "translate for others, by HTTP: LibreTranslate's API, and where each word came from\n"
      "Examples:\n"
      "  heed serve --model en-fr=m\n"
      "  heed serve --model en-fr=m --model fr-en=n --preload --port 8000\n"
      "  heed serve --model de-en=a --model en-fr=b --pivot en      de to fr, by en\n"
      "  heed serve --model en-fr=m --host 0.0.0.0 --api-keys keys --require-key\n"
      "Then:\n"
      "  curl -d q='the cat sleeps .' -d source=en -d target=fr localhost:5000/translate\n");
  command->add_option("--model", o->models, "two languages and a model's folder: en-fr=FOLDER");
  command->add_option("--host", o->server.http.host, "the address to listen at");
  command->add_option("--port", o->server.http.port, "0: any that is free")
      ->check(CLI::Range(0, 65535));
  command->add_flag("--preload", o->preload, "load all models now, not when they are first asked");
  command
      ->add_option("--unload-after", o->unload_after,
                   "drop a model that was not asked for so many seconds; 0: never")
      ->check(not_negative());
  command->add_option("--pivot", o->pivot, "a language by which others are reached");
  command
      ->add_option("--beam", s.translate.search.beam,
                   "hypotheses kept; 1 is greedy search (default: as an imported model's makers "
                   "have it)")
      ->check(CLI::Range(1, 1000));
  command->add_option("--batch", s.translate.batch, "sentences at a time; changes no result")
      ->check(above_zero())
      ->default_str("32, on a GPU 256");
  command->add_option("--url-prefix", s.url_prefix, "before all paths, such as /translator");
  command->add_flag("--no-files", o->no_files, "no /translate_file");
  command->add_flag("--no-weblate-check", o->no_weblate_check,
                    "refuse Weblate's trial, 'test' from en to de, where that is not served");
  command->add_flag("--quiet", o->quiet, "no line for each answer on stderr");
  command->add_flag("--log-texts", s.log_texts, "those lines with the texts");
  const auto access = [&](CLI::Option* option) { option->group("Who may ask"); };
  access(command->add_option("--api-keys", o->api_keys,
                             "a file: a key a line, then if wanted its requests a minute and its "
                             "characters a text; read again at SIGHUP"));
  access(command->add_flag("--require-key", s.require_key, "refuse whoever has no key"));
  access(command->add_flag("--open", o->open, "serve other machines without keys"));
  access(command->add_option("--allow-host", o->allow_hosts,
                             "a further name that requests may call this server by"));
  access(command->add_flag("--trust-forwarded-for", s.trust_forwarded_for,
                           "a proxy's X-Forwarded-For is the client's address"));
  access(command->add_option("--cors", o->cors,
                             "the origin whose pages may ask: *, https://..., or none"));
  add_limits(*command, *o);
  add_shortlist_flag(*command, o->machine);
  add_inference_flags(*command, o->machine);
  o->command = command;
  command->callback([o] { run(*o); });
}

}  // namespace heed::apps
