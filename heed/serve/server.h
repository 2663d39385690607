// A translation server: sockets (http.h), routes (service.h), and between them the threads that
// translate. Each of those waits for its own request; the sentences of all of them share the
// batches of one engine a model (search/engine.h).
//
// Threads: stop() and reload() may be called from any; run() by one.
#pragma once

#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "heed/serve/http.h"
#include "heed/serve/service.h"

namespace heed::serve {

struct ServerOptions {
  HttpOptions http = {};
  ServiceOptions service = {};
  std::filesystem::path keys = {};  // a file (access.h); none: no keys
  int64_t workers = 64;             // requests that are translated at a time
  int64_t queue = 1000;             // requests that wait; more are answered with 503
};

class Server {
 public:
  // Listens at once. Throws Error if it cannot.
  Server(Models& models, ServerOptions options);
  ~Server();

  int port() const { return http_->port(); }
  // Until it is stopped and everything that was asked is answered.
  void run();
  void stop() { http_->stop(); }
  // Reads the keys and the loaded models again. What cannot be read stays as it was, and is told
  // in the log.
  void reload();

 private:
  struct Job {
    Request request;
    std::shared_ptr<Reply> reply;
    std::chrono::steady_clock::time_point since;
  };
  void take(Request request, std::shared_ptr<Reply> reply);
  void work();
  void tend();
  std::vector<Counters::Gauge> gauges() const;

  Models& models_;
  const ServerOptions options_;
  std::unique_ptr<Service> service_;
  std::unique_ptr<HttpServer> http_;

  mutable std::mutex mutex_;
  std::condition_variable changed_;  // jobs, for the workers
  std::condition_variable over_;     // for the thread that tends the models
  std::deque<Job> jobs_;
  bool ended_ = false;
  int64_t idle_ = 0;
  std::vector<std::thread> workers_;
};

}  // namespace heed::serve
