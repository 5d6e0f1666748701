"""What other libraries, and the book's exercises, call the keys and values of gptlab: meaning goes before spelling.

From nanoGPT, transformers (its configs and TrainingArguments), litgpt, x-transformers and papers. A name stands here
with the key, or with the line KEY=VALUE, that says the same.
"""

from __future__ import annotations

_SAME_KEY = {
    "model.vocab_size": "num_tokens padded_vocab_size n_vocab vocabulary_size",
    "model.context_length": "block_size n_positions max_position_embeddings n_ctx max_seq_len seq_len sequence_length "
    "max_length ctx_len context_window context_size max_sequence_length",
    "model.emb_dim": "n_embd hidden_size d_model dim embed_dim embedding_dim embedding_size n_embed model_dim width "
    "hidden dim_model",
    "model.n_heads": "n_head num_attention_heads num_heads heads nhead attn_heads",
    "model.n_layers": "n_layer num_hidden_layers num_layers depth layers n_blocks num_blocks n_block",
    "model.n_kv_heads": "n_kv_head num_key_value_heads num_kv_heads n_query_groups kv_heads attn_kv_heads kv_head",
    "model.head_dim": "head_size dim_head attn_dim_head d_head d_k d_kv",
    "model.hidden_dim": "d_ff intermediate_size n_inner ff_dim ffn_dim dim_ff dim_feedforward ffn_hidden_size "
    "ffn_hidden d_mlp mlp_dim d_hidden",
    "model.hidden_multiple": "multiple_of",
    "model.expansion": "ff_mult mult mlp_ratio ffn_mult expansion_factor ffn_dim_multiplier",
    "model.drop_rate": "dropout dropout_rate dropout_prob p_dropout",
    "model.drop_embedding": "embd_pdrop emb_dropout embedding_dropout drop_rate_emb drop_rate_embedding drop_emb "
    "embed_dropout",
    "model.drop_attention": "attn_pdrop attention_dropout attn_dropout drop_rate_attn drop_rate_attention drop_attn "
    "attention_probs_dropout_prob",
    "model.drop_shortcut": "resid_pdrop hidden_dropout residual_dropout drop_rate_shortcut drop_residual drop_resid "
    "resid_dropout hidden_dropout_prob sublayer_dropout",
    "model.drop_feed_forward": "ff_dropout mlp_dropout activation_dropout ffn_dropout drop_rate_ff",
    "model.activation": "activation_function hidden_act act act_fn hidden_activation nonlinearity custom_activation",
    "model.feed_forward": "mlp_class_name mlp ffn ff feedforward mlp_type",
    "model.attention": "attn attention_type attn_type",
    "model.norm": "norm_class_name norm_type layer_norm normalization layernorm",
    "model.norm_placement": "norm_position norm_order",
    "model.position": "position_embedding_type pos_emb pos_embedding positional_encoding position_encoding "
    "position_embedding positional_embedding",
    "model.tie_weights": "tie_word_embeddings tie_embeddings tie_embedding weight_tying tied_embeddings tied "
    "share_embeddings weight_sharing",
    "model.shortcut": "residual skip_connection residual_connection shortcut_type",
    "model.feed_forward_bias": "mlp_bias ff_bias",
    "model.attention_bias": "out_proj_bias",
    "model.qkv_bias": "attn_bias qkv_has_bias",
    "model.causal": "is_causal",
    "model.embedding_scale": "scale_embeddings scale_emb",
    "model.options.norm.eps": "layer_norm_epsilon layer_norm_eps rms_norm_eps norm_eps",
    "model.options.position.base": "rope_theta rope_base rotary_base rotary_emb_base theta",
    "model.options.attention.window": "sliding_window sliding_window_size max_attend_past window_size",
    "model.options.attention.softcap": "attention_logit_softcapping attn_logit_softcapping logit_softclamp_value",
    "model.options.attention.qk_norm": "norm_qk use_qk_norm attn_qk_norm qk_layernorm qk_norm qk_rmsnorm",
    "model.options.init.std": "initializer_range init_std",
    "train.learning_rate": "lr max_lr peak_lr step_size",
    "train.batch_size": "per_device_train_batch_size micro_batch_size global_batch_size bs train_batch_size",
    "train.budget": "max_iters max_steps steps num_steps n_steps iterations num_iters iters train_steps total_steps",
    "train.warmup": "warmup_iters warmup_steps lr_warmup_steps num_warmup_steps",
    "train.final_rate": "min_lr min_lr_ratio",
    "train.schedule": "lr_scheduler_type lr_schedule scheduler lr_scheduler decay_lr",
    "train.optimizer": "optim optimiser",
    "train.weight_decay": "wd",
    "train.beta1": "adam_beta1",
    "train.beta2": "adam_beta2",
    "train.eps": "adam_epsilon adam_eps",
    "train.clip": "grad_clip max_grad_norm gradient_clip clip_grad grad_norm_clip max_norm gradient_clip_val",
    "train.accumulate": "gradient_accumulation_steps grad_accum accumulate_grad_batches gradient_accumulation_iters",
    "train.precision": "dtype torch_dtype mixed_precision amp",
    "train.compile": "torch_compile",
    "train.deterministic": "full_determinism",
    "evaluation.every": "eval_interval eval_steps eval_every val_check_interval",
    "train.log_every": "log_interval logging_steps log_every_n_steps",
    "train.checkpoint_every": "save_steps save_interval checkpoint_interval",
    "train.keep_checkpoints": "save_total_limit",
    "seed": "random_seed manual_seed data_seed",
    "output_dir": "out_dir save_dir out outdir",
    "tracker": "report_to logger wandb_log",
    "label": "run_name wandb_run_name exp_name",
    "workers": "num_workers n_jobs jobs num_proc",
    "data": "dataset train_data",
    "probes.generation.max_new_tokens": "max_new_tokens",
    "data.prompt": "start_context start",
}

_LINES = {
    "bf16": "train.precision=bf16",
    "fp16": "train.precision=bf16",
    "use_rmsnorm": "model.norm=rmsnorm",
    "use_simple_rmsnorm": "model.norm=rmsnorm",
    "use_scalenorm": "model.norm=scalenorm",
    "use_dynamic_tanh": "model.norm=dyt",
    "pre_norm": "model.norm_placement=pre",
    "post_norm": "model.norm_placement=post",
    "sandwich_norm": "model.norm_placement=sandwich",
    "pre_and_post_norm": "model.norm_placement=sandwich",
    "rotary_pos_emb": "model.position=rope",
    "use_rope": "model.position=rope",
    "alibi_pos_bias": "model.position=alibi",
    "use_abs_pos_emb": "model.position=none",
    "disable_abs_pos_emb": "model.position=none",
    "one_kv_head": "model.n_kv_heads=1",
    "attn_one_kv_head": "model.n_kv_heads=1",
    "parallel_residual": "model.layout=parallel",
    "use_parallel_residual": "model.layout=parallel",
    "only_attn": "model.layout=attention_only",
    "relu_squared": "model.activation=relu2",
    "ff_relu_squared": "model.activation=relu2",
    "swish": "model.activation=silu",
    "glu": "model.feed_forward=glu",
    "ff_glu": "model.feed_forward=glu",
    "ff_swish": "model.activation=silu",
    "ff_no_bias": "model.feed_forward_bias=false",
    "use_layerscale": "ablation=layerscale",
    "flash": "model.options.attention.implementation=sdpa",
    "bias": "model.qkv_bias=true",
    "max_tokens": "train.budget=TOKENS train.budget_unit=tokens",
    "epochs": "train.budget=STEPS",
    "num_train_epochs": "train.budget=STEPS",
    "num_epochs": "train.budget=STEPS",
    "max_epochs": "train.budget=STEPS",
}

KEYS: dict[str, str] = {
    **{name: key for key, names in _SAME_KEY.items() for name in names.split()},
    **_LINES,
}

# Names of components and presets, each with the one that it is here.
VALUES = {
    "gpt2": "gpt2_124m",
    "gpt2_small": "gpt2_124m",
    "gpt2-small": "gpt2_124m",
    "gpt2-medium": "gpt2_medium",
    "gpt2-large": "gpt2_large",
    "gpt2-xl": "gpt2_xl",
    "gpt_124m": "gpt2_124m",
    "gpt2-124m": "gpt2_124m",
    "124m": "gpt2_124m",
    "gpt3": "gpt3_175b",
    "gelu_new": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "swish": "silu",
    "relu_squared": "relu2",
    "layer_norm": "layernorm",
    "ln": "layernorm",
    "rms": "rmsnorm",
    "rms_norm": "rmsnorm",
    "dynamic_tanh": "dyt",
    "mha": "multi_head",
    "multihead": "multi_head",
    "rotary": "rope",
    "absolute": "learned",
    "sinusoid": "sinusoidal",
    "adam": "adamw",
    "bfloat16": "bf16",
    "float32": "fp32",
    "no_residual": "no_shortcut",
    "no_skip": "no_shortcut",
    "no_residuals": "no_shortcut",
    "no_layernorm": "no_norm",
    "postln": "post_ln",
    "post_norm": "post_ln",
    "weight_tying": "tied",
    "tie_weights": "tied",
    "parallel_residual": "parallel",
}

# Settings of other libraries that have no counterpart, and look like a key of gptlab that means something else.
NOWHERE = frozenset(
    {"num_memory_tokens", "add_cross_attention", "attn_layers", "padding_multiple", "tie_embedding_scale"}
    | {"dim_context", "log_level"}
)
