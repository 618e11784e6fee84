// What config.yaml changes of the daemon: the machine that runs are fitted to, the cluster that they are described for, the names it answers to.
#include "daemon/core/core.h"

// The machine as its owner says that it is.
static void apply_settings(struct daemon *daemon)
{
    machine_look(&daemon->machine);
    daemon->machine.slurm = &daemon->settings.config.slurm;
    if (settings_gpus(&daemon->settings) >= 0)
        gpus_declare(&daemon->machine.gpus, settings_gpus(&daemon->settings));
    executors_limit(daemon);
}

int settings_begin(struct daemon *daemon, int64_t gpus, struct error *err)
{
    if (settings_open(&daemon->settings, daemon->home, err) != 0)
        return -1;
    daemon->settings.gpus = gpus;
    apply_settings(daemon);
    return 0;
}

void settings_follow(struct daemon *daemon)
{
    struct settings *settings = &daemon->settings;
    if (!settings_have_changed(settings))
        return;
    pthread_mutex_lock(&daemon->lock);
    int status = settings_take(settings);
    if (status == 0)
        apply_settings(daemon);
    daemon->queue.again = true;
    pthread_mutex_unlock(&daemon->lock);
    if (status != 0)
        core_log("%s does not count, what it said before does:\n%s", settings->path, settings->fault);
    else
        core_log("%s was read again: it counts for what is submitted from now on", settings->path);
    if (status == 0 && settings->gpus >= 0 && settings->config.gpus >= 0 && settings->config.gpus != settings->gpus)
        core_log("%s: `gpus: %lld` does not count, this daemon was started with --gpus %lld", settings->path, (long long)settings->config.gpus,
            (long long)settings->gpus);
}

void daemon_allowed_hosts(struct daemon *daemon, void (*use)(void *context, const char *const *hosts, size_t count), void *context)
{
    struct settings *settings = &daemon->settings;
    pthread_mutex_lock(&settings->lock);
    use(context, (const char *const *)settings->config.allowed_hosts.items, settings->config.allowed_hosts.count);
    pthread_mutex_unlock(&settings->lock);
}
