#include "worker/train/loss_scale.h"

void loss_scale_init(struct loss_scale *loss_scale, const struct spec *spec)
{
    const struct spec_loss_scale *keys = &spec->training.loss_scale;
    bool scales = spec->training.precision == PRECISION_FP16;
    *loss_scale = (struct loss_scale){.scale = scales ? keys->initial : 1, .hysteresis_left = keys->hysteresis};
}

static void overflow(struct loss_scale *s, const struct spec_loss_scale *keys)
{
    s->skipped_steps++;
    s->good_steps = 0;
    if (--s->hysteresis_left <= 0)
        s->scale = s->scale / 2 > keys->minimum ? s->scale / 2 : keys->minimum;
}

static void good_step(struct loss_scale *s, const struct spec_loss_scale *keys)
{
    if (++s->good_steps < keys->window)
        return;
    s->good_steps = 0;
    s->hysteresis_left = keys->hysteresis;
    s->scale *= 2;
}

bool loss_scale_update(struct loss_scale *loss_scale, const struct spec *spec, bool gradients_are_finite)
{
    if (spec->training.precision != PRECISION_FP16)
        return false;
    if (gradients_are_finite)
        good_step(loss_scale, &spec->training.loss_scale);
    else
        overflow(loss_scale, &spec->training.loss_scale);
    return !gradients_are_finite;
}
