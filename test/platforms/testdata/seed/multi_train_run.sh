#/bin/bash
accelerate launch \
  --num_processes ${NUM_PROCESSES} \
  --num_machines ${WORLD_SIZE} \
  --rdzv_backend c10d \
  --main_process_ip ${MASTER_ADDR} \
  --main_process_port ${MASTER_PORT} \
  --machine_rank ${RANK} \
  /app/lora-scripts/sd-scripts/sdxl_train.py \
  --pretrained_model_name_or_path ${MODEL_PATH} \
  --train_data_dir ${TRAIN_DATA_PATH} \
  --output_dir ${OUTPUT_PATH}
