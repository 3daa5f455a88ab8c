"""An operator-level profile of a training: DenseNet-121 fine-tuned on two classes of photographs."""
